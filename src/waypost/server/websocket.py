"""One agent's WebSocket: authenticate, then read and write frames until either side closes it.

Rule 1  A connection that does not authenticate in time is closed; nothing is stored for it.
Rule 2  A broken frame is answered with an error; too many in a row end the connection.
Rule 3  No connection waits for another: each has its own reader and writer. The more sends of an
        agent are rejected, the more slowly it is read.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from waypost.policy.bounds import (
    frame_max_operations,
    frame_overhead_max_bytes,
    rejected_pause_max_ms,
    unanswered_max_operations,
)
from waypost.policy.errors import WaypostError
from waypost.relay.errors import MailboxTaken, MailboxUnavailable, PoolFull, RelayStopped
from waypost.server.context import ServerContext
from waypost.server.identity.errors import (
    IdentitiesNotSaved,
    IdentityError,
    KeyRevoked,
    NameReserved,
    NewNamesPaused,
    NotAuthenticated,
    SubjectTaken,
    TooManyChanges,
    TooManyIdentities,
    TooManyNames,
    TooManyNewNames,
)
from waypost.server.origins import origins_of
from waypost.server.proxies import plain_address
from waypost.server.sessions.deliveries import DeliveryLimits
from waypost.server.sessions.errors import (
    AlreadyConnected,
    BrokenFrame,
    TooManyConnections,
    brief,
)
from waypost.server.sessions.session import RELAY_FAILED_TEXT, Session
from waypost.wire import frames
from waypost.wire.cards import AgentCard
from waypost.wire.codecs import CODECS, Codec
from waypost.wire.frames import JSON_PROTOCOL, FrameOperation, FromAgent

log = logging.getLogger("waypost.server")

AUTH_TIMEOUT_S = 10.0
TURN_OPERATIONS = 32
"""Operations of one agent that are carried out before the event loop gets its turn."""
BROKEN_FRAMES_MAX = 20
"""Broken frames in a row after which the connection ends."""
CLOSE_TIMEOUT_S = 2.0
"""The time to send an error and close the connection."""
DRAIN_TIMEOUT_S = 1.0
"""The time to read frames that the agent sent before it closed the connection."""
REASON_MAX_BYTES = 123
"""The limit of a close reason in the WebSocket protocol."""


class Connection:
    """One WebSocket at `/v1/connect`."""

    def __init__(self, websocket: WebSocket, context: ServerContext) -> None:
        self._websocket = websocket
        self._context = context
        offered = websocket.scope.get("subprotocols", ())
        protocol = next((one for one in offered if one in CODECS), None)
        self._codec: Codec = CODECS[protocol or JSON_PROTOCOL]
        self._protocol = protocol
        self._frame_max_bytes = frame_overhead_max_bytes
        self._dismissed: asyncio.Future[tuple[int, str]]
        self._dismissed = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve the connection until either side closes it."""
        try:
            await self._websocket.accept(subprotocol=self._protocol)
        except (OSError, WebSocketDisconnect):
            return  # closed during the handshake
        try:
            with self._context.hub.handshake():
                session, card = await self._authenticate()
        except (WaypostError, TimeoutError) as problem:
            await self._reject(problem)
            return
        try:
            if card is not None:
                await self._set_card(session, card)
            end = await self._serve(session)
        finally:
            session.end()  # first: the agent may reconnect as soon as it is closed
        if end is not None:
            await self._close(*end)

    # Authentication

    async def _authenticate(self) -> tuple[Session, AgentCard | None]:
        context, websocket = self._context, self._websocket
        nonce = context.authenticator.challenge()
        await self._send([frames.Challenge(nonce=nonce, batches=True)])
        async with asyncio.timeout(AUTH_TIMEOUT_S):
            operations = await self._receive()
        if len(operations) != 1 or not isinstance(operations[0], frames.Auth):
            text = "not authenticated: the first frame must be one auth operation"
            raise BrokenFrame(text, code=frames.CLOSE_NOT_AUTHENTICATED)
        auth = operations[0]
        grant = await asyncio.to_thread(  # a new binding is written and synced
            context.authenticator.authenticate,
            subject=auth.subject,
            public_key=auth.public_key,
            signature=auth.signature,
            nonce=nonce,
            origins=origins_of(websocket.scope),
            sealing_key=auth.sealing_key,
            sealing_signature=auth.sealing_signature,
            address=plain_address(websocket.client.host) if websocket.client else "",
            now_ms=context.relay.now_us() // 1000,
        )
        if not context.authenticator.holds(auth.subject, auth.public_key):
            raise NotAuthenticated  # freed meanwhile
        session = self._make_session(auth)
        settings, options = context.relay.settings, context.options
        self._frame_max_bytes += settings.max_payload_bytes
        if allow := websocket.scope.get("state", {}).get("on_authenticated"):
            allow(self._frame_max_bytes)  # the socket reads little before this
        session.outbox.put(
            frames.Welcome(
                subject=grant.subject,
                token=grant.token,
                token_expires_at=grant.expires_at,
                frame_max_bytes=self._frame_max_bytes,
                operations_max=frame_max_operations,
                unconfirmed_max=options.unconfirmed_max,
                lease_timeout_ms=settings.lease_timeout_ms,
            )
        )
        session.start()
        return session, auth.card

    async def _set_card(self, session: Session, card: AgentCard, ref: int | None = None) -> None:
        """Keep the card of an agent; one that cannot be kept does not end its connection."""
        try:
            await self._context.directory.set_card(session.subject, card)
        except IdentityError as problem:
            session.rejected_in_a_row += 1
            wait_ms = problem.retry_after_ms if isinstance(problem, TooManyChanges) else 0
            text = f"card not kept: {brief(problem)}"
            session.send(frames.Error(error=text, reason="card", ref=ref, retry_after_ms=wait_ms))
            return
        if ref is not None:
            session.send(frames.CardSet(ref=ref))

    def _make_session(self, auth: frames.Auth) -> Session:
        options = self._context.options
        return Session(
            self._context.hub,
            self._context.relay,
            auth.subject,
            receive=auth.receive,
            codec=self._codec,
            limits=DeliveryLimits(
                options.batch,
                options.unconfirmed_max,
                prefetch=min(auth.prefetch, options.unconfirmed_max),
                answer_max_bytes=self._context.relay.settings.max_payload_bytes,
            ),
            shared=auth.shared,
            show_pressure=options.show_pressure,
            batches=auth.batches,
            address=_address(self._websocket),
            on_dismissed=self._dismiss,
        )

    async def _reject(self, problem: Exception) -> None:
        if isinstance(problem, _Disconnected):
            return
        code = CLOSE_CODES.get(type(problem), frames.CLOSE_NOT_AUTHENTICATED)
        if isinstance(problem, BrokenFrame) and problem.code is not None:
            code = problem.code
        text = brief(problem) or f"authentication timeout: no auth within {AUTH_TIMEOUT_S:g} s"
        await self._close(code, text)

    # Serving

    async def _serve(self, session: Session) -> tuple[int, str] | None:
        """Serve until the end; return the code and the reason if the relay has to close."""
        reader = asyncio.create_task(self._read(session))
        writer = asyncio.create_task(self._write(session))
        try:
            await asyncio.wait(
                (reader, writer, self._dismissed), return_when=asyncio.FIRST_COMPLETED
            )
            if writer.done() and not self._dismissed.done():
                await asyncio.wait((reader,), timeout=DRAIN_TIMEOUT_S)
        finally:
            for task in (reader, writer):
                task.cancel()
            ended = await asyncio.gather(reader, writer, return_exceptions=True)
        if self._dismissed.done():
            return self._dismissed.result()
        for one in ended:
            if isinstance(one, BrokenFrame):
                return one.code or CLOSE_POLICY_VIOLATION, brief(one)
            if isinstance(one, RelayStopped):
                return frames.CLOSE_GOING_AWAY, brief(one)
            if isinstance(one, Exception) and not isinstance(one, _Disconnected):
                log.error("connection of %s failed", session.subject, exc_info=one)
                return CLOSE_INTERNAL_ERROR, RELAY_FAILED_TEXT
        return None

    async def _read(self, session: Session) -> None:
        broken, is_new = 0, True
        while True:
            try:
                operations = await self._receive()
            except BrokenFrame as problem:
                broken += 1
                if broken >= BROKEN_FRAMES_MAX or problem.code is not None:
                    raise
                session.send(frames.Error(error=brief(problem), reason="invalid"))
                await asyncio.sleep(0)
                continue
            except _Disconnected:
                session.end()  # now: a request that follows does not find the agent connected
                raise
            broken = 0
            if is_new:  # an agent that does more than to connect uses its name
                self._context.authenticator.bindings.note_use(session.subject)
                is_new = False
            async with self._context.throttle.turn(session.subject):
                await self._handle(session, operations)
            await self._slow_down(session)

    async def _handle(self, session: Session, operations: Sequence[FromAgent]) -> None:
        """Carry out the operations of a frame, in turns with other connections."""
        for asked in operations:
            if type(asked) is frames.SetCard:
                await self._set_card(session, asked.card, asked.ref)
        done = 0
        while done < len(operations):
            turn = operations[done : done + TURN_OPERATIONS]
            if _has_parents(turn):
                await session.recall(turn)
            handled = session.handle(turn)
            done += handled
            # A send reached many. A sender with a turn of the throttle does not pause in it: others
            # wait for theirs, and it rests afterwards.
            if handled < len(turn) and not self._context.throttle.applies_to(session.subject):
                await self._slow_down(session)
            await asyncio.sleep(0)

    async def _slow_down(self, session: Session) -> None:
        """Delay the next read of an agent that floods: it costs no other agent time."""
        rejected = session.rejected_in_a_row
        is_flood = rejected >= frame_max_operations
        if is_flood != self._context.throttle.applies_to(session.subject):
            self._context.throttle.record(session.subject, rejected=is_flood)
        if rejected:
            await asyncio.sleep(min(rejected, rejected_pause_max_ms) / 1000)
        while session.unanswered > unanswered_max_operations:
            waiting = self._context.relay.durable()
            if waiting is None:
                break
            await waiting

    async def _write(self, session: Session) -> None:
        enough = self._frame_max_bytes - frame_overhead_max_bytes
        while operations := await session.outbox.take(frame_max_operations, enough):
            waiting = self._context.relay.unconfirmed()
            if waiting is not None:
                await waiting
            await self._send(operations)

    # Frames

    async def _receive(self) -> list[FromAgent]:
        """Return the operations of the next frame. Raises `BrokenFrame` or `_Disconnected`."""
        message = await self._websocket.receive()
        if message["type"] != "websocket.receive":
            raise _Disconnected
        frame: str | bytes = message.get("bytes") or message.get("text") or b""
        size = len(frame)
        if isinstance(frame, str) and not frame.isascii():
            size = len(frame.encode(errors="replace"))
        if size > self._frame_max_bytes:
            text = f"frame too large: {size:,} bytes, the limit is {self._frame_max_bytes:,}"
            raise BrokenFrame(text, code=frames.CLOSE_TOO_LARGE)
        try:
            operations = self._codec.from_agent(frame)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise BrokenFrame(f"not a valid {self._codec.protocol} frame: {problem}") from None
        if not operations:
            raise BrokenFrame("empty frame: send at least one operation")
        if len(operations) > frame_max_operations:
            raise BrokenFrame(f"too many operations in a frame: at most {frame_max_operations}")
        return operations

    async def _send(self, operations: list[FrameOperation]) -> None:
        frame = self._codec.encode(operations if len(operations) > 1 else operations[0])
        message: dict[str, Any] = {"type": "websocket.send"}
        if self._codec.is_text:
            message["text"] = frame.decode()
        else:
            message["bytes"] = frame
        try:
            await self._websocket.send(message)
        except Exception as problem:  # the error of a closed socket differs between servers
            raise _Disconnected from problem

    async def _close(self, code: int, text: str) -> None:
        """Send the reason as an error and close; ignore a peer that is gone or does not read."""
        reason = text.encode(errors="replace")[:REASON_MAX_BYTES].decode(errors="ignore")
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._send([frames.Error(error=text, fatal=True)])
                await self._websocket.close(code, reason)
        except (_Disconnected, TimeoutError, RuntimeError, WebSocketDisconnect):
            pass

    def _dismiss(self, code: int, reason: str) -> None:
        if not self._dismissed.done():
            self._dismissed.set_result((code, reason))


def _has_parents(operations: Sequence[FromAgent]) -> bool:
    return any(type(one) is frames.Send and one.parent is not None for one in operations)


def _address(websocket: WebSocket) -> str:
    """Return address and port of the peer; the port is 0 behind a trusted proxy."""
    peer = websocket.client
    if peer is None:
        return ""
    host = f"[{peer.host}]" if ":" in peer.host else peer.host
    return f"{host}:{peer.port}"


class _Disconnected(WaypostError):
    """The agent closed the connection."""


CLOSE_POLICY_VIOLATION = 1008
CLOSE_INTERNAL_ERROR = 1011
CLOSE_TRY_LATER = 1013
CLOSE_CODES: dict[type[Exception], int] = {
    SubjectTaken: frames.CLOSE_FORBIDDEN,
    KeyRevoked: frames.CLOSE_FORBIDDEN,
    NameReserved: frames.CLOSE_FORBIDDEN,
    TooManyNames: frames.CLOSE_FORBIDDEN,
    TooManyNewNames: CLOSE_TRY_LATER,
    NewNamesPaused: CLOSE_TRY_LATER,
    TimeoutError: frames.CLOSE_TOO_SLOW,
    AlreadyConnected: frames.CLOSE_ALREADY_CONNECTED,
    MailboxTaken: frames.CLOSE_ALREADY_CONNECTED,
    PoolFull: CLOSE_TRY_LATER,
    MailboxUnavailable: CLOSE_TRY_LATER,
    TooManyConnections: CLOSE_TRY_LATER,
    TooManyIdentities: CLOSE_TRY_LATER,
    IdentitiesNotSaved: CLOSE_TRY_LATER,
    RelayStopped: frames.CLOSE_GOING_AWAY,
}
