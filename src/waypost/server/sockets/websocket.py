"""uvicorn's WebSocket protocol with bounds: no frames, however small, occupy the event loop.

Rule 1  Until the agent has authenticated, `frame_overhead_max_bytes` are read of it in all.
Rule 2  What has arrived is parsed in small pieces, and no further than the application has read.
Rule 3  Frames that reach no application are counted: pings, pongs, and parts of messages that are
        too short. Too many of them end the connection.
Rule 4  A connection that is closed is gone within `CLOSE_DEADLINE_S`, whether the peer reads or
        not: otherwise it would keep its subject occupied. After a violation it is not read from
        until then: a peer that floods cannot begin again at once.
"""

import asyncio
import logging
from typing import Any, cast

from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from waypost.policy.bounds import (
    frame_overhead_max_bytes,
    message_fragments_max,
    small_frames_max,
)

log = logging.getLogger("waypost.server")

CLOSE_DEADLINE_S = 5.0
"""The time that a peer has to read the rest and to close its side."""
AUTHENTICATION_MAX_S = 30.0
"""The longest life of a connection that is not authenticated; usually it is closed long before."""
SMALL_FRAMES_WINDOW_S = 10.0
SMALL_FRAGMENT_BYTES = 128
PIECE_MIN_BYTES = 1024
PIECE_MAX_BYTES = 16 * 1024
"""Bytes parsed at once; the longer a frame, the larger the pieces in which it is read."""
HEADERS_BYTES = 1024
"""What headers of frames may add to `frame_overhead_max_bytes` before authentication."""

CLOSE_PROTOCOL_ERROR = 1002
CLOSE_NOT_TEXT = 1007
CLOSE_POLICY_VIOLATION = 1008
CLOSE_TOO_LARGE = 1009


class EventQueue:
    """Events for an application that reads them one by one. Smaller than the queue of asyncio."""

    __slots__ = ("_events", "_waiting")

    def __init__(self) -> None:
        self._events: list[ASGIReceiveEvent] = []
        self._waiting: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._events)

    def empty(self) -> bool:
        """Return whether there is nothing to read."""
        return not self._events

    def put_nowait(self, event: ASGIReceiveEvent) -> None:
        """Append an event."""
        self._events.append(event)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def get(self) -> ASGIReceiveEvent:
        """Wait for the next event, and remove it."""
        while not self._events:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._events.pop(0)


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket; `since` is when it was opened, in loop time."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.queue = cast("asyncio.Queue[ASGIReceiveEvent]", EventQueue())
        self.since = self.loop.time()
        self._authenticated = False
        self._early_bytes = 0
        self._unread = b""
        self._piece_bytes = PIECE_MIN_BYTES
        self._small_frames = 0
        self._window_began = self.since
        self._abort_timer: asyncio.TimerHandle | None = None

    # The acceptor's view

    @property
    def is_expendable(self) -> bool:
        """Whether the agent has not authenticated."""
        return not self._authenticated

    def abort(self) -> None:
        """Close the connection without sending what is left."""
        self.transport.abort()

    def expire(self, now: float) -> None:
        """End a connection on which no agent has authenticated."""
        if not self._authenticated and now - self.since > AUTHENTICATION_MAX_S:
            self.abort()

    # The application's view

    def handle_connect(self, event: Request) -> None:
        """Start the application, which reports in `state` that the agent has authenticated."""
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["state"]["on_authenticated"] = self._allow

    def _allow(self, frame_max_bytes: int) -> None:
        """Accept frames of an authenticated agent; slightly longer ones get an error in words.

        The headers are not needed any more, and may be as large as everything else together.
        """
        self._authenticated = True
        self.request.headers.clear()  # the parser holds it, too
        del self.request, self.response
        self.scope["headers"] = []
        self.conn.max_message_size = frame_max_bytes + frame_overhead_max_bytes

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next event, and parse what has arrived behind it."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty() and not self.close_sent:
            self._parse_unread()
            if self.queue.empty():
                self.read_paused = False
                self.transport.resume_reading()
        return message

    def send_500_response(self) -> None:
        """Reject the handshake, once: both the end of the application and a stop would."""
        if not self.conn.eof_sent:
            super().send_500_response()

    async def run_asgi(self) -> None:
        """Serve the connection; abort it `CLOSE_DEADLINE_S` after the end if it is still open."""
        await super().run_asgi()
        self._abort_soon()

    # Reading

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, as far as the application has read."""
        if self.handshake_initiated and not self._authenticated:
            self._early_bytes += len(data)
            if not self.handshake_complete:
                self.abort()  # a frame before the handshake is complete
                return
            if self._early_bytes > frame_overhead_max_bytes + HEADERS_BYTES:
                self._fail(CLOSE_TOO_LARGE, "too many bytes before authentication")
                return
        if self._unread:
            self._unread += data
        elif len(data) <= PIECE_MIN_BYTES:
            self._parse(data)
            return
        else:
            self._unread = data
        self._parse_unread()

    def _parse_unread(self) -> None:
        """Parse until the application has something to read."""
        begin, data = 0, self._unread
        while begin < len(data) and (self.queue.empty() or self.close_sent):
            if self.transport.is_closing():
                begin = len(data)
                break
            end = begin + self._piece_bytes
            is_longer = self._parse(data[begin:end])
            self._piece_bytes = (
                min(2 * self._piece_bytes, PIECE_MAX_BYTES) if is_longer else PIECE_MIN_BYTES
            )
            begin = end
        self._unread = data[begin:]

    def _parse(self, piece: bytes) -> bool:
        """Parse one piece; return whether it is the inner part of a longer frame."""
        self.conn.receive_data(piece)
        if self.conn.parser_exc is not None:
            self.handle_parser_exception()
            return False
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._reject_handshake()
            return False
        is_longer = not self.conn.events
        self.handle_events()
        return is_longer

    def _reject_handshake(self) -> None:
        """Answer an upgrade whose headers are too long for a WebSocket."""
        self.handshake_complete = True
        self._stop_reading()

    # Frames

    def handle_ping(self) -> None:
        """Answer a ping, unless the peer does not read or sends too many."""
        if self._count_small_frame():
            return
        pong = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(pong)

    def handle_pong(self, event: Frame) -> None:
        """Note that the peer is alive."""
        if not self._count_small_frame():
            super().handle_pong(event)

    def handle_cont(self, event: Frame) -> None:
        """Add a part to a message."""
        if not event.fin:
            if len(event.data) < SMALL_FRAGMENT_BYTES and self._count_small_frame():
                return
            if len(self.frames) >= message_fragments_max:
                self._fail(CLOSE_POLICY_VIOLATION, "too many fragments in a message")
                return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """Pass on a complete message."""
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.close_sent:
            return
        if self.curr_msg_data_type == "text":
            try:
                self.queue.put_nowait({"type": "websocket.receive", "text": data.decode()})
            except UnicodeDecodeError:
                self._fail(CLOSE_NOT_TEXT, "a text frame is not UTF-8")
                return
        else:
            self.queue.put_nowait({"type": "websocket.receive", "bytes": data})
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def _count_small_frame(self) -> bool:
        """Count a frame that reaches no application; return whether the connection has ended."""
        if self.close_sent:
            return True
        now = self.loop.time()
        if now - self._window_began > SMALL_FRAMES_WINDOW_S:
            self._window_began, self._small_frames = now, 0
        self._small_frames += 1
        if self._small_frames > small_frames_max:
            self._fail(CLOSE_POLICY_VIOLATION, "too many pings, pongs or short fragments")
        return self.close_sent

    # The end

    def handle_parser_exception(self) -> None:
        """Close after bytes that are no WebSocket frame, or a frame that is too long."""
        sent = self.conn.close_sent
        code = sent.code if sent is not None else CLOSE_PROTOCOL_ERROR
        self._end(code, sent.reason if sent is not None else "")

    def keepalive_timeout(self) -> None:
        """Abort the connection of a peer that does not answer pings."""
        super().keepalive_timeout()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline and drop what was not read."""
        super().connection_lost(exc)
        self._unread = b""
        if self._abort_timer is not None:
            self._abort_timer.cancel()
            self._abort_timer = None

    def _fail(self, code: int, reason: str) -> None:
        if not self.close_sent and not self.transport.is_closing():
            self.conn.fail(code, reason)
            self._end(code, reason)

    def _end(self, code: int, reason: str) -> None:
        """Send the close frame that was prepared."""
        log.warning("connection closed: %s", reason, extra={"code": code, "peer": self.client})
        self._unread = b""
        self.frames = []
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self._stop_reading()

    def _stop_reading(self) -> None:
        """Send what is prepared, read no more, and close after a while."""
        self.close_sent = True
        if self.transport.is_closing():
            return
        self.transport.write(b"".join(self.conn.data_to_send()))
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()
        self.close_timer = self.loop.call_later(CLOSE_DEADLINE_S, self.transport.abort)

    def _abort_soon(self) -> None:
        if not self.disconnected and self._abort_timer is None:
            self._abort_timer = self.loop.call_later(CLOSE_DEADLINE_S, self.transport.abort)
