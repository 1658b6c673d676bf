"""The socket of one agent: who are you, then what it says and what it is told, until it ends.

Rule 1  Nothing is kept for someone who has not said who they are, and not for long.
Rule 2  Whatever comes is answered: garbage with an error, too much of it with the end.
Rule 3  One connection never waits for another: each has its own reader and its own writer. One
        whose sends are refused is read more slowly the more of them there are.
"""

import asyncio
import logging
from functools import partial
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from waypost.policy.bounds import (
    frame_max_operations,
    frame_overhead_max_bytes,
    unanswered_max_operations,
)
from waypost.policy.errors import WaypostError
from waypost.relay.errors import MailboxTaken, RelayStopped
from waypost.server.context import ServerContext
from waypost.server.identity.errors import IdentitiesNotSaved, SubjectTaken, TooManyIdentities
from waypost.server.sessions.deliveries import Limits
from waypost.server.sessions.errors import (
    AlreadyConnected,
    BrokenFrame,
    TooManyConnections,
    brief,
)
from waypost.server.sessions.session import Session
from waypost.wire import frames
from waypost.wire.frames import CODECS, JSON_PROTOCOL, Codec, FrameOperation, FromAgent

log = logging.getLogger("waypost.server")

AUTH_TIMEOUT_S = 10.0
TURN_OPERATIONS = 32
"""So many operations of one agent are done before others have their turn."""
REJECTED_PAUSE_MAX_S = 0.1
"""The longest pause between two frames of an agent whose sends are refused."""
GARBAGE_MAX = 20
"""So many broken frames in a row are answered; then the connection ends."""
FAREWELL_S = 2.0
"""How long somebody who has to go has to take note of it."""
LAST_WORDS_S = 1.0
"""How long what an agent said before it closed the connection is still read."""
REASON_MAX_BYTES = 123
"""A WebSocket has no room for a longer one."""


class Connection:
    """One WebSocket at `/v1/connect`."""

    def __init__(self, websocket: WebSocket, services: ServerContext) -> None:
        self._websocket = websocket
        self._services = services
        offered = websocket.scope.get("subprotocols", ())
        protocol = next((one for one in offered if one in CODECS), None)
        self._codec: Codec = CODECS[protocol or JSON_PROTOCOL]
        self._protocol = protocol
        self._frame_max_bytes = frame_overhead_max_bytes
        self._dismissed: asyncio.Future[tuple[int, str]]
        self._dismissed = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Until either side ends it."""
        try:
            await self._websocket.accept(subprotocol=self._protocol)
        except (OSError, WebSocketDisconnect):
            return  # it went as it came
        try:
            with self._services.hub.arrival():
                session = await self._authenticate()
        except (WaypostError, TimeoutError) as problem:
            await self._reject(problem)
            return
        try:
            end = await self._serve(session)
        finally:
            session.end()  # first: whoever is told to go may come back at once
        if end is not None:
            await self._end(*end)

    # Who are you?

    async def _authenticate(self) -> Session:
        services, websocket = self._services, self._websocket
        nonce = services.authenticator.challenge()
        await self._send([frames.Challenge(nonce=nonce)])
        async with asyncio.timeout(AUTH_TIMEOUT_S):
            operations = await self._receive()
        if len(operations) != 1 or not isinstance(operations[0], frames.Auth):
            raise BrokenFrame("say who you are first: one auth operation", code=NOT_AUTHENTICATED)
        auth = operations[0]
        grant = await asyncio.to_thread(  # a new name is written down, and synced
            services.authenticator.authenticate,
            subject=auth.subject,
            public_key=auth.public_key,
            signature=auth.signature,
            nonce=nonce,
            origin=websocket.headers.get("host", ""),
            sealing_key=auth.sealing_key,
            sealing_signature=auth.sealing_signature,
        )
        session = self._make_session(auth)
        settings, options = services.relay.settings, services.options
        self._frame_max_bytes += settings.max_payload_bytes
        session.outbox.put(
            frames.Welcome(
                subject=grant.subject,
                token=grant.token,
                token_expires_at=grant.expires_at,
                frame_max_bytes=self._frame_max_bytes,
                operations_max=frame_max_operations,
                unconfirmed_max=options.unconfirmed_max,
            )
        )
        session.start()
        return session

    def _make_session(self, auth: frames.Auth) -> Session:
        options = self._services.options
        session = Session(
            self._services.hub,
            self._services.relay,
            auth.subject,
            receive=auth.receive,
            codec=self._codec,
            limits=Limits(
                options.batch,
                options.unconfirmed_max,
                self._services.relay.settings.max_payload_bytes,
            ),
            show_pressure=options.show_pressure,
            address=_address(self._websocket),
        )
        session.on_dismissed = partial(self._dismiss, frames.CLOSE_GOING_AWAY)
        session.outbox.on_overflow = partial(
            self._dismiss, frames.CLOSE_TOO_SLOW, "you do not read what is sent to you"
        )
        return session

    async def _reject(self, problem: Exception) -> None:
        if isinstance(problem, _Gone):
            return
        code = CLOSE_CODES.get(type(problem), frames.CLOSE_NOT_AUTHENTICATED)
        if isinstance(problem, BrokenFrame) and problem.code is not None:
            code = problem.code
        text = brief(problem) or "no answer to the challenge in time"
        await self._end(code, text)

    # Until it ends

    async def _serve(self, session: Session) -> tuple[int, str] | None:
        """Until it ends; gives the code and the reason, if the relay ends it."""
        reader = asyncio.create_task(self._read(session))
        writer = asyncio.create_task(self._write(session))
        try:
            await asyncio.wait(
                (reader, writer, self._dismissed), return_when=asyncio.FIRST_COMPLETED
            )
            if writer.done() and not self._dismissed.done():
                await asyncio.wait((reader,), timeout=LAST_WORDS_S)
        finally:
            for task in (reader, writer):
                task.cancel()
            ended = await asyncio.gather(reader, writer, return_exceptions=True)
        if self._dismissed.done():
            return self._dismissed.result()
        for one in ended:
            if isinstance(one, BrokenFrame):
                return one.code or CLOSE_GARBAGE, brief(one)
            if isinstance(one, RelayStopped):
                return frames.CLOSE_GOING_AWAY, brief(one)
            if isinstance(one, Exception) and not isinstance(one, _Gone):
                log.error("connection of %s failed", session.subject, exc_info=one)
                return CLOSE_FAILED, "the relay failed; this is its fault, not yours"
        return None

    async def _read(self, session: Session) -> None:
        garbage = 0
        while True:
            try:
                operations = await self._receive()
            except BrokenFrame as problem:
                garbage += 1
                if garbage >= GARBAGE_MAX or problem.code is not None:
                    raise
                session.tell(frames.Error(error=brief(problem), reason="invalid"))
                await asyncio.sleep(0)
                continue
            garbage = 0
            for begin in range(0, len(operations) or 1, TURN_OPERATIONS):
                session.handle(operations[begin : begin + TURN_OPERATIONS])
                await asyncio.sleep(0)
            await self._slow_down(session)

    async def _slow_down(self, session: Session) -> None:
        """A flood that is refused costs those who send it time, not the others."""
        rejected = session.requests.rejected_in_a_row
        if rejected:
            await asyncio.sleep(min(rejected / 1000, REJECTED_PAUSE_MAX_S))
        while session.requests.unanswered > unanswered_max_operations:
            waiting = self._services.relay.durable()
            if waiting is None:
                break
            await waiting

    async def _write(self, session: Session) -> None:
        enough = self._frame_max_bytes - frame_overhead_max_bytes
        while operations := await session.outbox.take(frame_max_operations, enough):
            try:
                await self._send(operations)
            except BaseException:
                session.outbox.put_back(operations)
                raise

    # Frames

    async def _receive(self) -> list[FromAgent]:
        """The operations of the next frame; raises `BrokenFrame`, or `_Gone` at the end."""
        message = await self._websocket.receive()
        if message["type"] != "websocket.receive":
            raise _Gone
        frame: str | bytes = message.get("bytes") or message.get("text") or b""
        size = len(frame)
        if isinstance(frame, str) and not frame.isascii():
            size = len(frame.encode(errors="replace"))
        if size > self._frame_max_bytes:
            why = f"a frame may have {self._frame_max_bytes:,} bytes, not {size:,}"
            raise BrokenFrame(why, code=frames.CLOSE_TOO_LARGE)
        try:
            operations = self._codec.from_agent(frame)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise BrokenFrame(f"not a frame of {self._codec.protocol}: {problem}") from None
        if len(operations) > frame_max_operations:
            raise BrokenFrame(f"a frame holds at most {frame_max_operations} operations")
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
        except Exception as problem:  # what a closed socket raises differs between servers
            raise _Gone from problem

    async def _end(self, code: int, why: str) -> None:
        """Say why, if there is somebody to hear it, and close."""
        reason = why.encode(errors="replace")[:REASON_MAX_BYTES].decode(errors="ignore")
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._send([frames.Error(error=why, fatal=True)])
                await self._websocket.close(code, reason)
        except (_Gone, TimeoutError, RuntimeError, WebSocketDisconnect):
            pass  # it is closed already, or nobody reads

    def _dismiss(self, code: int, reason: str) -> None:
        if not self._dismissed.done():
            self._dismissed.set_result((code, reason))


def _address(websocket: WebSocket) -> str:
    """Where the other side is, as the socket knows it: behind a proxy, the proxy's."""
    peer = websocket.client
    if peer is None:
        return ""
    host = f"[{peer.host}]" if ":" in peer.host else peer.host
    return f"{host}:{peer.port}"


class _Gone(WaypostError):
    """The other side closed the connection."""


NOT_AUTHENTICATED = frames.CLOSE_NOT_AUTHENTICATED
CLOSE_GARBAGE = 1008
CLOSE_FAILED = 1011
CLOSE_TRY_LATER = 1013
CLOSE_CODES: dict[type[Exception], int] = {
    SubjectTaken: frames.CLOSE_FORBIDDEN,
    TimeoutError: frames.CLOSE_TOO_SLOW,
    AlreadyConnected: frames.CLOSE_ALREADY_CONNECTED,
    MailboxTaken: frames.CLOSE_ALREADY_CONNECTED,
    TooManyConnections: CLOSE_TRY_LATER,
    TooManyIdentities: CLOSE_TRY_LATER,
    IdentitiesNotSaved: CLOSE_TRY_LATER,
    RelayStopped: frames.CLOSE_GOING_AWAY,
}
