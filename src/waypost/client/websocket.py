"""WebSocket I/O for a session: connect, read, write, reconnect.

Rule 1  One reader, one writer. Operations queued while the writer is busy share the next frame.
Rule 2  A connection ends as a whole, and the session decides whether and when to reconnect.
Rule 3  No wait without a deadline: connecting and the handshake have timeouts, an open connection
        is pinged.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from waypost.client.address import Address
from waypost.client.errors import CannotConnect
from waypost.client.guard import wall_clock_us
from waypost.client.options import ClientOptions
from waypost.client.protocol.events import SessionEvent
from waypost.client.protocol.session import Session
from waypost.policy.bounds import payload_max_bytes
from waypost.policy.errors import InvalidInput
from waypost.wire.frames import CODECS

log = logging.getLogger("waypost.client")

FRAME_MAX_BYTES = 4 * payload_max_bytes
"""Upper bound for a relay's frame: the largest payload with every byte escaped, and a margin."""

_RETRY_STATUSES = {408, 425, 429}


def now_ms() -> int:
    """Return the milliseconds since the epoch."""
    return wall_clock_us() // 1000


class WebSocketLink:
    """Runs `session` over WebSockets.

    `handle` receives the events of a frame and its size in bytes; `wait_for_room` delays reading
    while the application has too many unread messages.
    """

    def __init__(
        self,
        address: Address,
        session: Session,
        options: ClientOptions,
        handle: Callable[[list[SessionEvent], int], None],
        wait_for_room: Callable[[], Awaitable[None]],
    ) -> None:
        self._address = address
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
        self._all_written.clear()
        self._has_operations.set()

    async def flush(self) -> None:
        """Wait until all queued operations are written, if there is a connection."""
        if self._session.is_ready and self._session.has_unwritten:
            self.wake()
            await self._all_written.wait()

    async def run(self) -> None:
        """Stay connected until cancelled. Raises `CannotConnect` on a permanent failure."""
        while True:
            code, text = await self._connect_once()
            self.problem = text or f"connection closed with code {code}"
            self._all_written.set()  # there is nothing left to flush to
            delay_ms = self._session.disconnected(now_ms(), code, text)
            log.info("disconnected: %s; reconnecting in %d ms", self.problem, delay_ms)
            await asyncio.sleep(delay_ms / 1000)

    async def _connect_once(self) -> tuple[int | None, str]:
        """Run one connection from open to close; return its close code and reason."""
        try:
            websocket = await self._open()
        except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed) as failure:
            self._raise_if_permanent(failure)
            return None, f"{self._address.uri}: {str(failure) or type(failure).__name__}"
        try:
            if websocket.subprotocol != self._options.protocol:
                raise CannotConnect(
                    f"{self._address.uri} does not support the subprotocol {self._options.protocol}"
                )
            self._session.connected()
            problem = await self._exchange(websocket)
        finally:
            await _close(websocket)
        return websocket.close_code, problem or websocket.close_reason or ""

    async def _open(self) -> ClientConnection:
        options = self._options
        return await open_websocket(
            self._address.uri,
            subprotocols=[Subprotocol(options.protocol)],
            compression=None,  # costs memory per connection and gains little on small messages
            ssl=(options.tls or True) if self._address.uri.startswith("wss:") else None,
            proxy=None,
            open_timeout=options.handshake_timeout_s,
            close_timeout=options.close_timeout_s,
            ping_interval=options.ping_interval_s,
            ping_timeout=options.ping_interval_s,
            max_size=FRAME_MAX_BYTES,
        )

    def _raise_if_permanent(self, problem: Exception) -> None:
        """Raise `CannotConnect` if the server was never a relay. A known relay may come back."""
        if self._session.welcome is not None or not isinstance(problem, InvalidHandshake):
            return
        if isinstance(problem, InvalidStatus):
            status = problem.response.status_code
            if status >= 500 or status in _RETRY_STATUSES:
                return
        raise CannotConnect(f"{self._address.uri} is not a relay: {problem}") from problem

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
            except (msgspec.DecodeError, UnicodeDecodeError, InvalidInput) as problem:
                return f"{self._address.uri}: protocol error: {problem}"
            finally:
                writing.cancel()
        return ""

    async def _read(self, websocket: ClientConnection) -> None:
        async with asyncio.timeout(self._options.handshake_timeout_s):
            while not self._session.is_ready:
                self._take(await websocket.recv(decode=False))
        while True:
            await self._wait_for_room()
            self._take(await websocket.recv(decode=False))

    def _take(self, frame: bytes | str) -> None:
        events = self._session.received(frame, now_ms())
        if events:
            self._handle(events, len(frame))
        self.wake()  # to write a proof, acks of duplicates, or operations queued before the welcome

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


async def _close(websocket: ClientConnection) -> None:
    """Close, and read meanwhile: the close frame may come behind many other frames."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(websocket.close())
        try:
            while True:
                await websocket.recv(decode=False)
        except ConnectionClosed:
            pass
