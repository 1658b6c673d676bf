"""WebSocket I/O for a session: connect, read, write, reconnect.

Rule 1  One reader, one writer. Operations queued while the writer is busy share the next frame.
Rule 2  A connection ends as a whole, and the session decides whether and when to reconnect.
Rule 3  No wait without a deadline: connecting and the handshake have timeouts, an open connection
        is pinged.
Rule 4  No HTTP redirect is followed. A relay of several nodes sends its agents from one to another,
        within the addresses that they were given (`route`).
Rule 5  Bytes in both directions are bounded, whatever the relay sends and does not read.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket_connector
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
)
from websockets.frames import DATA_OPCODES, Frame, Opcode
from websockets.protocol import Event
from websockets.typing import Subprotocol

from waypost.client.address import MISDIRECTED, Address
from waypost.client.errors import CannotConnect, RelayMoved
from waypost.client.guard import wall_clock_us
from waypost.client.options import ClientOptions
from waypost.client.protocol.arrivals import memory_bytes
from waypost.client.protocol.events import SessionEvent
from waypost.client.protocol.session import Session
from waypost.client.route import Route
from waypost.policy.bounds import payload_max_bytes
from waypost.policy.errors import InvalidInput
from waypost.wire.codecs import CODECS
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL

log = logging.getLogger("waypost.client")

FRAME_MAX_BYTES = {
    JSON_PROTOCOL: payload_max_bytes + 4 * 1024 * 1024,
    MSGPACK_PROTOCOL: 3 * payload_max_bytes,
}
"""Upper bounds for a relay's frame: the largest payload and a margin. In MessagePack, numbers may
take twice as much as in JSON."""

UNREAD_FRAMES_MAX = 4
"""Frames buffered below the session; reading pauses beyond."""

UNREAD_PONGS_MAX = 1000
"""Answers to the pings of a relay that does not read them."""

FRAGMENTS_MAX = 1024
"""Fragments of one frame. Even empty ones are kept until the last arrives."""

MOVES_PAUSE_MS = 1000
"""The pause after too many moves in a row from one node to another."""

_RETRY_STATUSES = {408, 425, 429}


def now_ms() -> int:
    """Return the milliseconds since the epoch."""
    return wall_clock_us() // 1000


class _Connector(websocket_connector):
    """Opens a WebSocket at its address and nowhere else."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the exception: a redirect is a failure like any other."""
        return exc


class BoundedConnection(ClientConnection):
    """A connection that ends when its relay exceeds a bound; `violation` is then the cause."""

    violation = ""
    _fragments = 0
    _unread_pongs = 0

    def process_event(self, event: Event) -> None:
        """Process a frame; end the connection if one has too many fragments, or if the answers to
        pings are not read."""
        if isinstance(event, Frame):
            if event.opcode in DATA_OPCODES:
                self._fragments = 0 if event.fin else self._fragments + 1
            elif event.opcode is Opcode.PING:
                is_blocked = self.transport.get_write_buffer_size() > 0
                self._unread_pongs = self._unread_pongs + 1 if is_blocked else 0
            if self._fragments > FRAGMENTS_MAX:
                self._end(f"a frame of more than {FRAGMENTS_MAX:,} fragments")
                return
            if self._unread_pongs > UNREAD_PONGS_MAX:
                self._end("the relay does not read the answers to its pings")
                return
        super().process_event(event)

    def _end(self, violation: str) -> None:
        self.violation = violation
        self.transport.abort()


class WebSocketLink:
    """Runs `session` over WebSockets.

    `handle` receives the events of a frame and their size in memory; `wait_for_room` delays reading
    while the application has too many unread messages.
    """

    def __init__(
        self,
        route: Route,
        session: Session,
        options: ClientOptions,
        handle: Callable[[list[SessionEvent], int], None],
        wait_for_room: Callable[[], Awaitable[None]],
    ) -> None:
        self._route = route
        self._session = session
        self._options = options
        self._handle = handle
        self._wait_for_room = wait_for_room
        self._is_text = CODECS[options.protocol].is_text
        self._has_operations = asyncio.Event()
        self._all_written = asyncio.Event()
        self.problem = "no attempt yet"
        """Why there is no connection, while there is none."""

    def wake(self) -> None:
        """Notify the writer that the session has operations to write."""
        if not self._has_operations.is_set():
            self._all_written.clear()
            self._has_operations.set()

    async def flush(self) -> None:
        """Wait until all queued operations are written, if there is a connection."""
        if self._session.is_ready and self._session.has_unwritten:
            self._all_written.clear()
            self._has_operations.set()
            await self._all_written.wait()

    async def run(self) -> None:
        """Stay connected until cancelled. Raises `CannotConnect` on a permanent failure."""
        while True:
            code, text = await self._connect_once()
            self.problem = text or f"connection closed with code {code}"
            self._all_written.set()  # there is nothing left to flush to
            try:
                delay_ms = self._session.disconnected(now_ms(), code, text)
                self._route.give_up()
            except RelayMoved as moved:
                delay_ms = 0 if self._route.follow(moved.url) else MOVES_PAUSE_MS
            log.info("disconnected: %s; reconnecting in %d ms", self.problem, delay_ms)
            await asyncio.sleep(delay_ms / 1000)

    @property
    def _address(self) -> Address:
        return self._route.current

    async def _connect_once(self) -> tuple[int | None, str]:
        """Run one connection from open to close; return its close code and reason."""
        try:
            websocket = await self._open()
        except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed) as failure:
            self._raise_if_permanent(failure)
            return None, f"{self._address.uri}: {self._describe(failure)}"
        try:
            if websocket.subprotocol != self._options.protocol:
                raise CannotConnect(
                    f"{self._address.uri} does not support the subprotocol {self._options.protocol}"
                )
            self._session.connected()
            problem = await self._exchange(websocket)
        finally:
            await _close(websocket)
        if websocket.violation:
            problem = f"{self._address.uri}: protocol error: {websocket.violation}"
        return websocket.close_code, problem or websocket.close_reason or ""

    async def _open(self) -> BoundedConnection:
        options = self._options
        opened = await _Connector(
            self._address.uri,
            create_connection=BoundedConnection,
            subprotocols=[Subprotocol(options.protocol)],
            compression=None,  # costs memory per connection and gains little on small messages
            ssl=(options.tls or True) if self._address.uri.startswith("wss:") else None,
            proxy=None,
            open_timeout=options.handshake_timeout_s,
            close_timeout=options.close_timeout_s,
            ping_interval=options.ping_interval_s,
            ping_timeout=options.ping_interval_s,
            max_size=FRAME_MAX_BYTES[options.protocol],
            max_queue=UNREAD_FRAMES_MAX,
        )
        assert isinstance(opened, BoundedConnection)
        return opened

    def _raise_if_permanent(self, problem: Exception) -> None:
        """Raise `CannotConnect` if the server was never a relay. A known relay may come back."""
        if self._session.welcome is not None or not isinstance(problem, InvalidHandshake):
            return
        if _is_broken_off(problem):
            return  # a relay that restarts, or has too many connections, may answer later
        if isinstance(problem, InvalidStatus):
            status = problem.response.status_code
            if status >= 500 or status in _RETRY_STATUSES:
                return
            if status == MISDIRECTED:
                raise CannotConnect(self._address.not_its_name()) from problem
        raise CannotConnect(f"{self._address.uri} is not a relay: {problem}") from problem

    def _describe(self, problem: Exception) -> str:
        if not _is_broken_off(problem):
            return str(problem) or type(problem).__name__
        other = "ws" if self._address.uri.startswith("wss:") else "wss"
        return f"the connection ended without an answer in HTTP; is it {other}:// instead?"

    async def _exchange(self, websocket: ClientConnection) -> str:
        """Read and write until the connection ends; return a protocol error, if any."""
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self._write(websocket))
            try:
                await self._read(websocket)
            except ConnectionClosed:
                return ""
            except TimeoutError:
                return f"{self._address.uri}: handshake timed out"
            except (
                msgspec.DecodeError,
                UnicodeDecodeError,
                InvalidInput,
                RecursionError,
            ) as problem:
                return f"{self._address.uri}: protocol error: {problem}"
            finally:
                writing.cancel()
        return ""

    async def _read(self, websocket: ClientConnection) -> None:
        async with asyncio.timeout(self._options.handshake_timeout_s):
            while not self._session.is_ready:
                self._take(await websocket.recv(decode=False))
        self._route.arrived()
        while True:
            await self._wait_for_room()
            self._take(await websocket.recv(decode=False))

    def _take(self, frame: bytes | str) -> None:
        events = self._session.received(frame, now_ms())
        if events:
            self._handle(events, memory_bytes(frame, is_text=self._is_text))
        if self._session.has_unwritten:
            self.wake()  # a proof, acks of duplicates, or operations queued before the welcome

    async def _write(self, websocket: ClientConnection) -> None:
        try:
            while True:
                frame = self._session.next_frame()
                if frame is not None:
                    await websocket.send(frame, text=self._is_text)
                    continue
                self._all_written.set()
                self._has_operations.clear()
                await self._has_operations.wait()
        except ConnectionClosed:
            return  # the reader gets the same exception


def _is_broken_off(problem: Exception) -> bool:
    """Return whether the connection ended before an answer. Whether that is a reset or an end is a
    matter of timing, so both must mean the same."""
    if isinstance(problem, InvalidMessage):
        return isinstance(problem.__cause__, EOFError)
    return isinstance(problem, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)


async def _close(websocket: ClientConnection) -> None:
    """Close, and read meanwhile: the close frame may come behind many other frames."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(websocket.close())
        try:
            while True:
                await websocket.recv(decode=False)
        except ConnectionClosed:
            pass
