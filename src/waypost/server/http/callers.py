"""Who a request comes from, by its token, and what they may call."""

from enum import StrEnum

import msgspec
from starlette.requests import Request

from waypost.policy.reserved_names import ANONYMOUS, OPERATOR
from waypost.server.context import ServerContext
from waypost.server.http.errors import HttpError


class Access(StrEnum):
    """Who may call an operation."""

    ANYONE = "anyone"
    PUBLISHER = "an agent, the operator, or anyone if the relay takes anonymous messages"
    AGENT = "an agent, for what is its own, or the operator"
    OPERATOR = "the operator"


class Caller(msgspec.Struct, frozen=True):
    """`subject` is who messages of this caller are from."""

    subject: str
    is_operator: bool = False

    def require(self, subject: str) -> None:
        """Raise `Refused` (403) unless the caller may act for `subject`."""
        if not self.is_operator and subject != self.subject:
            raise HttpError(403, f"this belongs to {subject!r:.80}; you are {self.subject}")


NOBODY = Caller(ANONYMOUS)


def identify(request: Request, context: ServerContext, access: Access) -> Caller:
    """Who is calling, or `Refused`: 401 without a token that is good, 403 if it is not enough."""
    if access is Access.ANYONE:
        return NOBODY
    header = request.headers.get("authorization")
    if header is None:
        if access is Access.PUBLISHER and context.options.anonymous:
            return NOBODY
        raise unauthorised("this needs a token: send 'Authorization: Bearer <token>'")
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise unauthorised("expected 'Authorization: Bearer <token>'")
    if context.authenticator.is_operator(token):
        return Caller(OPERATOR, is_operator=True)
    subject = context.authenticator.subject_of_token(token)
    if subject is None:
        raise unauthorised("this token is over or was never good: get another at /v1/auth/token")
    if access is Access.OPERATOR:
        raise HttpError(403, "this needs the operator's token")
    return Caller(subject)


def unauthorised(text: str) -> HttpError:
    """A refusal that asks for a token."""
    return HttpError(401, text, headers={"WWW-Authenticate": "Bearer"})
