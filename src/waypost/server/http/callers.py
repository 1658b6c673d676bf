"""The caller of a request: its token, its network address, and what it may call."""

from enum import StrEnum

import msgspec
from starlette.requests import Request
from starlette.types import Scope

from waypost.policy.reserved_names import ANONYMOUS, OPERATOR
from waypost.server.context import ServerContext
from waypost.server.http.errors import HttpError
from waypost.server.proxies import plain_address


class Access(StrEnum):
    """The callers of an operation."""

    ANYONE = "anyone"
    PUBLISHER = "an agent, the operator, or anyone if the relay accepts anonymous messages"
    SCRAPER = "the operator, or anyone if the relay's metrics are open"
    AGENT = "an agent, for its own data, or the operator"
    OPERATOR = "the operator"


class Caller(msgspec.Struct, frozen=True):
    """An identified caller; `subject` is the sender of its messages."""

    subject: str
    is_operator: bool = False

    def require(self, subject: str) -> None:
        """Raise `HttpError` (403) unless the caller may act for `subject`."""
        if not self.is_operator and subject != self.subject:
            raise HttpError(
                403, f"forbidden: this belongs to {subject!r:.80}, you are {self.subject}"
            )


OPERATOR_NEEDED = (
    "forbidden: this operation needs the operator's token, from the file operator-token in the"
    " relay's data directory"
)
ANONYMOUS_CALLER = Caller(ANONYMOUS)


def identify(request: Request, context: ServerContext, access: Access) -> Caller:
    """Return the caller. Raises `HttpError`: 401 without a valid token, 403 if it is not enough."""
    if access is Access.SCRAPER:
        access = Access.ANYONE if context.options.metrics == "open" else Access.OPERATOR
    if access is Access.ANYONE:
        return ANONYMOUS_CALLER
    header = request.headers.get("authorization")
    if header is None:
        if access is Access.PUBLISHER and context.options.anonymous:
            return ANONYMOUS_CALLER
        raise unauthorised("missing token: send 'Authorization: Bearer <token>'")
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise unauthorised("malformed header: expected 'Authorization: Bearer <token>'")
    if context.authenticator.is_operator(token):
        return Caller(OPERATOR, is_operator=True)
    subject = context.authenticator.subject_of_token(token)
    if subject is None:
        raise unauthorised("invalid or expired token: get a new one from /v1/auth/token")
    if access is Access.OPERATOR:
        raise HttpError(403, OPERATOR_NEEDED)
    return Caller(subject)


def unauthorised(text: str) -> HttpError:
    """Return a 401 error that asks for a token."""
    return HttpError(401, text, headers={"WWW-Authenticate": "Bearer"})


def client_address(scope: Scope) -> str:
    """Return the network address of the caller, without its port; "" if it is unknown.

    Behind a trusted proxy it is the address of the proxy's client (`server.gate` puts it there).
    """
    client = scope.get("client")
    return plain_address(client[0]) if client else ""
