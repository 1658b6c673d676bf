"""The front of a node: passes requests on to the partitions it owns, and sends others to their
owner.

Rule 1  Partition N is a whole relay below `/p/N/`, at the node that owns it and nowhere else.
Rule 2  Above that, the node answers for itself alone: an agent learns there which partition its
        subject belongs to and where that is. Nothing is authenticated for it, because every node
        says the same about a subject to everybody.
Rule 3  An answer names an owner's address only from what the nodes report about themselves, never
        from the request.
Rule 4  What a caller sends here is bounded as at a relay: one frame, or one small body, in time.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import quote, unquote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from waypost.policy.bounds import subject_length_max_chars
from waypost.policy.errors import InvalidInput
from waypost.policy.reserved_names import ANONYMOUS
from waypost.policy.subjects import is_subject
from waypost.server.http.contract import Reply
from waypost.server.http.errors import HttpError, rejection_of
from waypost.server.http.routing import respond, respond_rejected
from waypost.wire import frames
from waypost.wire.codecs import CODECS
from waypost.wire.handshake import NONCE_BYTES, from_text, to_text, validate_agent_subject
from waypost.wire.http_bodies import ChallengeResponse

PREFIX = "/p/"
CONNECT_PATH = "/v1/connect"
BODY_MAX_BYTES = 64 * 1024
WAIT_MAX_S = 10.0
RETRY_MS = 500
"""When to ask again while no node owns a partition: a take-over takes some seconds."""

_partition_path = re.compile(r"/p/(0|[1-9][0-9]{0,3})(/.*)?", re.DOTALL).fullmatch
PARTITION_NEEDED = "partition_needed"
_SUBJECT_KINDS = frozenset({"inbox", "agents", "endpoints", "webhooks"})
_SHARED_KINDS = frozenset({"agents", "rules", "config", "names"})
_TOKEN_PATHS = ("/v1/auth/token", "/v1/auth/rotate")


class Placement(Protocol):
    """Where partitions are. `app` is that of one owned here; `address` is "" while none owns it."""

    @property
    def partitions(self) -> int: ...
    def partition_of(self, subject: str) -> int: ...
    def app(self, partition: int) -> ASGIApp | None: ...
    def address(self, partition: int) -> str: ...


class Subject(msgspec.Struct):
    """The part of a proof of identity that tells where to send it."""

    subject: str


class Front:
    """The ASGI application of a node. `own` answers for the node: status, metrics, health."""

    def __init__(self, placement: Placement, own: ASGIApp, own_paths: frozenset[str]) -> None:
        self._placement = placement
        self._own = own
        self._own_paths = own_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket."""
        path = scope["path"]
        if found := _partition_path(path):
            await self._partition(int(found[1]), found[2], scope, receive, send)
        elif scope["type"] == "websocket":
            await self._point_agent(WebSocket(scope, receive, send))
        elif path in self._own_paths or path.startswith("/dashboard/"):
            await self._own(scope, receive, send)
        else:
            await self._point_caller(scope, receive, send)

    async def _partition(
        self, partition: int, path: str | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass a request on to the partition, or tell where it is."""
        app = self._placement.app(partition)
        if path is None and scope["type"] == "http":
            await RedirectResponse(f"{PREFIX}{partition}/")(scope, receive, send)
        elif app is not None:
            root = scope.get("root_path", "") + f"{PREFIX}{partition}"
            raw_path = scope.get("raw_path", b"")[len(f"{PREFIX}{partition}") :]
            inner = {**scope, "path": path or "/", "root_path": root, "raw_path": raw_path}
            await app(inner, receive, send)
        elif scope["type"] == "websocket":
            websocket = WebSocket(scope, receive, send)
            await _within(lambda: self._send_away(websocket, partition))
        else:
            answer = _redirected(scope, path or "/", self._elsewhere(partition))
            await respond_rejected(answer)(scope, receive, send)

    async def _point_agent(self, websocket: WebSocket) -> None:
        """Tell an agent where its partition is, once it has said who it is."""

        async def point() -> None:
            codec = CODECS[_protocol(websocket) or frames.JSON_PROTOCOL]
            await websocket.accept(subprotocol=_protocol(websocket))
            await _send(websocket, frames.Challenge(nonce=_nonce()))
            message = await websocket.receive()
            operations = codec.from_agent(message.get("bytes") or message.get("text") or b"")
            auth = operations[0] if operations else None
            if isinstance(auth, frames.Auth):
                validate_agent_subject(auth.subject)
                partition = self._placement.partition_of(auth.subject)
                await self._send_away(websocket, partition, accepted=True)
            else:
                await websocket.close(frames.CLOSE_NOT_AUTHENTICATED, "not authenticated")

        await _within(point)

    async def _send_away(
        self, websocket: WebSocket, partition: int, *, accepted: bool = False
    ) -> None:
        if not accepted:
            await websocket.accept(subprotocol=_protocol(websocket))
        problem = self._elsewhere(partition).problem
        error = frames.Error(
            error=problem.error,
            reason=frames.MOVED,
            url=problem.url,
            retry_after_ms=problem.retry_after_ms,
            fatal=True,
        )
        await _send(websocket, error)
        await websocket.close(frames.CLOSE_MOVED, "moved")

    async def _point_caller(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell a caller of HTTP where the partition of its subject is."""
        request = Request(scope, receive)
        try:
            if scope["path"].startswith(PREFIX):
                response = respond_rejected(self._elsewhere(-1))
            elif scope["path"] == "/v1/auth/challenge" and scope["method"] == "POST":
                response = respond(Reply(ChallengeResponse(nonce=_nonce())))
            else:
                partition = self._partition_for(await _subject_of(request))
                answer = _redirected(scope, scope["path"], self._elsewhere(partition))
                response = respond_rejected(answer)
        except Exception as problem:
            response = respond_rejected(rejection_of(problem))
        await response(scope, receive, send)

    def _partition_for(self, subject: str | None) -> int:
        """Return the partition of a subject; None is anything that all partitions share."""
        return 0 if subject is None else self._placement.partition_of(subject)

    def _elsewhere(self, partition: int) -> HttpError:
        """Return the answer to a request for a partition that is not here."""
        if not 0 <= partition < self._placement.partitions:
            last = self._placement.partitions - 1
            return HttpError(404, f"no such partition: they are {PREFIX}0 to {PREFIX}{last}")
        address = self._placement.address(partition)
        if not address:
            text = f"no node owns partition {partition} at the moment; try again"
            return HttpError(503, text, reason=frames.MOVED, retry_after_ms=RETRY_MS)
        url = f"{address}{PREFIX}{partition}"
        text = f"this belongs to partition {partition}, which is at {url}"
        return HttpError(421, text, reason=frames.MOVED, url=url)


def _redirected(scope: Scope, path: str, answer: HttpError) -> HttpError:
    """Return an answer that names another node; as a redirect, if there is no body to repeat."""
    if not answer.problem.url or scope["method"] not in ("GET", "HEAD"):
        return answer
    query = scope.get("query_string", b"").decode("latin-1")
    location = answer.problem.url + quote(path, safe="/:@,~") + (f"?{query}" if query else "")
    problem = answer.problem
    return HttpError(
        307, problem.error, reason=problem.reason, url=problem.url, headers={"Location": location}
    )


async def _subject_of(request: Request) -> str | None:
    """Return the subject that a request concerns: that of its proof or its token, or the one of
    callers without either; for an operator, the one it names, or None if all partitions share what
    it asks for. Raises `InvalidInput` and `HttpError`."""
    if request.url.path in _TOKEN_PATHS:
        subject = msgspec.json.decode(await _body_of(request), type=Subject).subject
        validate_agent_subject(subject)
        return subject
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return ANONYMOUS
    try:
        claim = from_text(token.strip().partition(".")[0][: 4 * subject_length_max_chars])
        subject = claim.partition(b"\n")[0].decode()
        validate_agent_subject(subject)
    except (InvalidInput, UnicodeDecodeError):
        return _named_by_operator(request.url.path)
    return subject


def _named_by_operator(path: str) -> str | None:
    """Return the subject in the path of an operator's request; None for what is shared.

    Raises `HttpError` if each partition has an answer of its own.
    """
    kind, _, rest = path.removeprefix("/v1/").partition("/")
    subject = unquote(rest.partition("/")[0])
    if kind in _SUBJECT_KINDS and len(subject) <= subject_length_max_chars and is_subject(subject):
        return subject
    if kind in _SHARED_KINDS:
        return None
    text = (
        "each partition of this cluster has an answer of its own: name one in the URL, as in"
        f" NODE{PREFIX}0 (with a token that is no agent's, a request needs a partition)"
    )
    raise HttpError(421, text, reason=PARTITION_NEEDED)


async def _body_of(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(WAIT_MAX_S):
            async for piece in request.stream():
                body += piece
                if len(body) > BODY_MAX_BYTES:
                    raise HttpError(413, f"body too large: the limit is {BODY_MAX_BYTES:,} bytes")
    except TimeoutError:
        raise HttpError(408, f"timeout: the body did not arrive within {WAIT_MAX_S:g} s") from None
    return bytes(body)


def _protocol(websocket: WebSocket) -> str | None:
    offered = websocket.scope.get("subprotocols", ())
    return next((one for one in offered if one in CODECS), None)


async def _send(websocket: WebSocket, operation: frames.FrameOperation) -> None:
    codec = CODECS[_protocol(websocket) or frames.JSON_PROTOCOL]
    encoded = codec.encode(operation)
    if codec.is_text:
        await websocket.send_text(encoded.decode())
    else:
        await websocket.send_bytes(encoded)


async def _within(act: Callable[[], Awaitable[None]]) -> None:
    """Carry out an exchange in time; a peer that breaks it off or sends nonsense is left alone."""
    try:
        async with asyncio.timeout(WAIT_MAX_S):
            await act()
    except (TimeoutError, OSError, RuntimeError, WebSocketDisconnect):
        return
    except (msgspec.DecodeError, UnicodeError, RecursionError, InvalidInput):
        return


def _nonce() -> str:
    """Return a nonce that no one redeems: the partition gives another."""
    return to_text(secrets.token_bytes(NONCE_BYTES))
