"""Requests to the HTTP interface of a relay, one at a time, for the command line and MCP.

WaypostError
└── RemoteError           the relay is unreachable, denies access, or cannot serve the request

Rule 1  Input that no relay accepts raises `InvalidInput`, as everywhere.
Rule 2  An error text names the URL and what a person can do about it.
Rule 3  Proxies are bypassed: the relay's own host and port are part of every proof of identity.
Rule 4  An answer has a bounded size, and an exchange a deadline.

Needs httpx. The rest of `waypost.client` works without this module.
"""

import ssl
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from waypost.client.address import MISDIRECTED, Address
from waypost.client.errors import RelayMoved
from waypost.client.http_transport import HttpTransport, UnacceptableAnswer
from waypost.client.route import Route
from waypost.policy.errors import InvalidInput, WaypostError
from waypost.wire.frames import MOVED
from waypost.wire.http_bodies import ChallengeResponse, TokenRequest, TokenResponse
from waypost.wire.name_bodies import RotationResponse
from waypost.wire.problems import Problem

if TYPE_CHECKING:
    from waypost.client.identity import Identity

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

OPERATOR_TOKEN_NEEDED = (
    "this needs the operator's token: give --operator-token-file with the file operator-token of"
    " the relay's data directory (or WAYPOST_OPERATOR_TOKEN_FILE, or WAYPOST_OPERATOR_TOKEN)"
)


_REDIRECT = 307


class RemoteError(WaypostError):
    """A request to a served relay failed. `status` is the HTTP status, 0 without a response;
    `reason` is the relay's word for it, or empty."""

    def __init__(self, text: str, status: int = 0, reason: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


class Role(StrEnum):
    """Whose token a request carries."""

    ANONYMOUS = "anonymous"
    AGENT = "agent"
    OPERATOR = "operator"


class Token(msgspec.Struct, frozen=True):
    """A bearer token and the role it stands for; anonymous requests have no `text`."""

    role: Role
    text: str = ""


NO_TOKEN = Token(Role.ANONYMOUS)


class HttpClient:
    """The HTTP interface at `url`. Raises `InvalidInput` unless `url` is a relay's address."""

    def __init__(self, url: str, on_accepted: Callable[[Token], None] = lambda token: None) -> None:
        """Call `on_accepted` with the token of each request that the relay carried out."""
        self._route = Route.parse(url)
        self._on_accepted = on_accepted
        self._transport = HttpTransport(tls_context(self.url))

    @property
    def url(self) -> str:
        """The URL of the relay; those of its nodes are separated by commas."""
        return self._route.urls

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def log_in(self, identity: "Identity") -> Token:
        """Return a token for the agent `identity`, after proving that it holds its keys."""
        return self._on_its_node(lambda: self._log_in(identity))

    def _log_in(self, identity: "Identity") -> Token:
        nonce = self._new_nonce()
        proof = identity.prove(nonce, self._route.current.origin)
        asked = TokenRequest(
            subject=proof.subject,
            public_key=proof.public_key,
            signature=proof.signature,
            nonce=nonce,
            sealing_key=proof.sealing_key,
            sealing_signature=proof.sealing_signature,
        )
        agent, body = Token(Role.AGENT), _encode(asked)
        given = self._exchange("POST", "/v1/auth/token", TokenResponse, agent, content=body)
        return Token(Role.AGENT, given.token)

    def rotate(self, identity: "Identity", new: "Identity") -> None:
        """Move the subject of `identity` to the keys of `new`, which replaces it from then on."""
        self._on_its_node(lambda: self._rotate(identity, new))

    def _rotate(self, identity: "Identity", new: "Identity") -> None:
        asked = identity.prove_rotation(self._new_nonce(), self._route.current.origin, new)
        agent, body = Token(Role.AGENT), _encode(asked)
        self._exchange("POST", "/v1/auth/rotate", RotationResponse, agent, content=body)

    def _new_nonce(self) -> str:
        path = "/v1/auth/challenge"
        return self._exchange("POST", path, ChallengeResponse, NO_TOKEN, content=b"").nonce

    def _on_its_node(self, act: Callable[[], T]) -> T:
        """Return what `act` returns, repeated at the node that the relay sends it to, or at the
        next one if a node is not there."""
        unreachable = 0
        while True:
            try:
                return act()
            except RelayMoved as moved:
                if not self._route.follow(moved.url):
                    raise RemoteError(
                        f"the nodes of the relay at {self.url} send this request to each other:"
                        " try again later"
                    ) from None
            except httpx.HTTPError as problem:
                unreachable += 1
                is_unsent = isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout)
                if not is_unsent or unreachable >= self._route.given_count:
                    raise _no_response(self.url, problem) from None
                self._route.give_up()

    def get(self, path: str, answer: type[T], *, token: Token = NO_TOKEN, **query: Any) -> T:
        """Return the resource at `path`. Raises `RemoteError` or `InvalidInput`."""
        params = {name: _text(value) for name, value in query.items() if value is not None}
        return self._request("GET", path, answer, token, params=params)

    def post(self, path: str, body: object, answer: type[T], *, token: Token = NO_TOKEN) -> T:
        """Post `body` as JSON and return the answer. Raises as `get` does."""
        return self._request("POST", path, answer, token, content=_encode(body))

    def put(
        self, path: str, body: bytes, answer: type[T], *, token: Token = NO_TOKEN, **query: Any
    ) -> T:
        """Put `body` at `path` and return the answer. Raises as `get` does."""
        params = {name: _text(value) for name, value in query.items()}
        return self._request("PUT", path, answer, token, content=body, params=params)

    def delete(self, path: str, answer: type[T], *, token: Token = NO_TOKEN, **query: Any) -> T:
        """Delete the resource at `path` and return the answer. Raises as `get` does."""
        params = {name: _text(value) for name, value in query.items() if value is not None}
        return self._request("DELETE", path, answer, token, params=params)

    def _request(self, method: str, path: str, answer: type[T], token: Token, **more: Any) -> T:
        return self._on_its_node(lambda: self._exchange(method, path, answer, token, **more))

    def _exchange(self, method: str, path: str, answer: type[T], token: Token, **more: Any) -> T:
        """Make one request to the current node. Raises `RelayMoved` if another has to be asked, and
        `httpx.HTTPError` without an answer."""
        headers = {"Content-Type": "application/json"} if more.get("content") else {}
        if token.text:
            headers["Authorization"] = f"Bearer {token.text}"
        url = self._route.current.http_url
        try:
            status, body = self._transport.exchange(method, url + path, headers=headers, **more)
        except UnacceptableAnswer as problem:
            raise RemoteError(
                f"the answer of {url} was not read: {problem}; is it a relay?"
            ) from None
        if status in (MISDIRECTED, _REDIRECT) and (moved := _moved_to(body)):
            raise RelayMoved(moved)
        if status == MISDIRECTED:
            raise _misdirected(self._route.current, body)
        if status != 200:
            raise _failure(url, status, body, token.role)
        self._on_accepted(token)
        try:
            return msgspec.json.decode(body, type=answer)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise RemoteError(
                f"unexpected response from {url}: {problem}; is it a relay of this version?"
            ) from None


def _moved_to(body: bytes) -> str:
    """Return the URL of the node that a relay names in its answer; "" if it names none."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return problem.url if problem.reason == MOVED else ""


def _misdirected(address: Address, body: bytes) -> WaypostError:
    """Return the error of a request to the wrong partition, or under a wrong name."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, RecursionError):
        problem = Problem(error="")
    if problem.reason == "partition_needed":
        return RemoteError(f"at {address.http_url} {problem.error}", MISDIRECTED, problem.reason)
    if "belongs to partition" in problem.error:
        return RemoteError(problem.error, MISDIRECTED, problem.reason)
    return RemoteError(address.not_its_name(), MISDIRECTED)


def path_segment(name: str) -> str:
    """Quote a subject or an id for use in a path."""
    return quote(name, safe="")


def tls_context(url: str) -> ssl.SSLContext | None:
    """Return a TLS context with this machine's certificate authorities (or those of
    SSL_CERT_FILE); None for a URL without TLS."""
    return ssl.create_default_context() if url.startswith("https:") else None


def _encode(body: object) -> bytes:
    return b"" if body is None else msgspec.json.encode(body)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Failures

_BROKEN_OFF = (
    httpx.RemoteProtocolError,
    httpx.ReadError,
    httpx.WriteError,
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
)


def _no_response(url: str, problem: Exception) -> RemoteError:
    if isinstance(problem, httpx.TimeoutException):
        return RemoteError(f"the relay at {url} timed out: try again later")
    cause = _cause(problem, ssl.SSLError)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return RemoteError(
            f"the certificate of {url} cannot be trusted ({cause.verify_message}): if it is"
            " the relay's own, name it with SSL_CERT_FILE=FILE"
        )
    if cause is not None:
        return RemoteError(
            f"TLS handshake with {url} failed ({cause.reason or cause}): is it http:// instead of"
            " https://?"
        )
    if _cause(problem, _BROKEN_OFF) is not None:
        # Which one a wrong protocol causes is a matter of timing: a server that closes with unread
        # bytes resets the connection, and the reset may overtake its answer.
        other = "http" if url.startswith("https:") else "https"
        return RemoteError(
            f"{url} is not a relay, or ended the connection before it answered: is it {other}://"
            " instead? If a relay is restarting there, try again"
        )
    reason = str(problem) or type(problem).__name__
    return RemoteError(
        f"no relay answers at {url}: start one with 'waypost serve', or name another with --url"
        f" ({reason})"
    )


def _failure(url: str, status: int, body: bytes, role: Role) -> WaypostError:
    """Translate an answer with a status other than 200."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, RecursionError):
        return RemoteError(f"{url} is not a relay (HTTP status {status}): check --url", status)
    match status:
        case 400 | 413:
            return InvalidInput(problem.error)
        case 401:
            return RemoteError(_unauthorized(url, problem, role), status)
        case 403:
            return RemoteError(_forbidden(url, problem, role), status, problem.reason)
        case 429 | 503:
            wait = problem.retry_after_ms
            later = f"try again in {max(1, round(wait / 1000)):,} s" if wait else "try again later"
            return RemoteError(f"not now: {problem.error}; {later}", status)
        case _:
            return RemoteError(problem.error, status)


def _unauthorized(url: str, problem: Problem, role: Role) -> str:
    match role:
        case Role.OPERATOR:
            return (
                f"the relay at {url} rejected this operator's token: the right one is in the file"
                " operator-token of its data directory"
            )
        case Role.AGENT:
            return (
                f"the relay at {url} rejected the proof of these keys ({problem.error}): connect"
                " to it under its own name, not through a proxy that changes it"
            )
        case Role.ANONYMOUS:
            return OPERATOR_TOKEN_NEEDED


def _forbidden(url: str, problem: Problem, role: Role) -> str:
    if problem.reason in ("directory_closed", "key_revoked", "name_reserved", "too_many_names"):
        return f"at {url} {problem.error}"
    if problem.reason == "subject_taken" and role is Role.OPERATOR:
        return problem.error
    if problem.reason == "subject_taken":
        return (
            f"at {url} {problem.error}: use the key file it was first used with (--key), or another"
            " subject"
        )
    if problem.reason == "host_not_allowed":
        return problem.error
    if "operator" in problem.error:
        return OPERATOR_TOKEN_NEEDED
    if role is Role.AGENT:
        return f"{problem.error}: give its own keys with --key, or the operator's token"
    return problem.error


def _cause(problem: BaseException | None, kind: type[E] | tuple[type[E], ...]) -> E | None:
    """Return `problem` or the first of its causes that is of this kind."""
    while problem is not None:
        if isinstance(problem, kind):
            return problem
        problem = problem.__cause__ or problem.__context__
    return None
