"""The wire under a session: connects, reads, writes, connects again.

Rule 1  One reader, one writer. What the session has to say when the writer is free goes out
        together.
Rule 2  A connection ends as a whole, and the session decides what comes next.
Rule 3  No wait without a deadline: opening and the handshake have theirs, an open connection is
        pinged.
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
"""No relay sends larger frames: the largest payload, escaped as badly as JSON can, with room."""

_TRY_AGAIN_STATUSES = {408, 425, 429}


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return wall_clock_us() // 1000


class Link:
    """Drives `session`. `handle` is told what happened and how many bytes it came in; `room` waits
    until more may be read."""

    def __init__(
        self,
        address: Address,
        session: Session,
        options: ClientOptions,
        handle: Callable[[list[SessionEvent], int], None],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        self._address = address
        self._session = session
        self._options = options
        self._handle = handle
        self._room = room
        self._is_text = CODECS[options.protocol].is_text
        self._something_to_write = asyncio.Event()
        self._all_written = asyncio.Event()
        self.problem = "no attempt yet"
        """Why there is no connection, if there is none."""

    def wake(self) -> None:
        """The session has something to say."""
        self._all_written.clear()
        self._something_to_write.set()

    async def drained(self) -> None:
        """Wait until everything said so far is written, if there is a connection to write to."""
        if self._session.is_ready and self._session.has_unwritten:
            self.wake()
            await self._all_written.wait()

    async def run(self) -> None:
        """Keep connected until cancelled. Raises `CannotConnect` when that is of no use."""
        while True:
            code, text = await self._converse()
            self.problem = text or f"the connection ended with code {code}"
            self._all_written.set()  # or whoever waits to close would wait in vain
            delay_ms = self._session.disconnected(now_ms(), code, text)
            log.info("not connected: %s; again in %d ms", self.problem, delay_ms)
            await asyncio.sleep(delay_ms / 1000)

    async def _converse(self) -> tuple[int | None, str]:
        """One connection from beginning to end: the code and the words it ended with."""
        try:
            websocket = await self._open()
        except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed) as problem:
            self._raise_if_useless(problem)
            return None, f"{self._address.uri}: {str(problem) or type(problem).__name__}"
        try:
            if websocket.subprotocol != self._options.protocol:
                raise CannotConnect(f"{self._address.uri} does not speak {self._options.protocol}")
            self._session.connected()
            wrong = await self._exchange(websocket)
        finally:
            await _hang_up(websocket)
        return websocket.close_code, wrong or websocket.close_reason or ""

    async def _open(self) -> ClientConnection:
        options = self._options
        return await open_websocket(
            self._address.uri,
            subprotocols=[Subprotocol(options.protocol)],
            compression=None,  # small messages, and a cost per connection
            ssl=(options.tls or True) if self._address.uri.startswith("wss:") else None,
            proxy=None,
            open_timeout=options.handshake_timeout_s,
            close_timeout=options.close_timeout_s,
            ping_interval=options.ping_interval_s,
            ping_timeout=options.ping_interval_s,
            max_size=FRAME_MAX_BYTES,
        )

    def _raise_if_useless(self, problem: Exception) -> None:
        """What is no relay at first will not become one; what was one may be back soon."""
        if self._session.welcome is not None or not isinstance(problem, InvalidHandshake):
            return
        if isinstance(problem, InvalidStatus):
            status = problem.response.status_code
            if status >= 500 or status in _TRY_AGAIN_STATUSES:
                return
        raise CannotConnect(f"{self._address.uri} is not a relay: {problem}") from problem

    async def _exchange(self, websocket: ClientConnection) -> str:
        """Read and write until the connection ends; what was wrong, if not the connection."""
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self._write(websocket))
            try:
                await self._read(websocket)
            except ConnectionClosed:
                return ""
            except TimeoutError:
                return f"{self._address.uri}: no welcome in time"
            except (msgspec.DecodeError, UnicodeDecodeError, InvalidInput) as problem:
                return f"{self._address.uri} sent what no relay sends: {problem}"
            finally:
                writing.cancel()
        return ""

    async def _read(self, websocket: ClientConnection) -> None:
        async with asyncio.timeout(self._options.handshake_timeout_s):
            while not self._session.is_ready:
                self._take(await websocket.recv(decode=False))
        while True:
            await self._room()
            self._take(await websocket.recv(decode=False))

    def _take(self, frame: bytes | str) -> None:
        happened = self._session.received(frame, now_ms())
        if happened:
            self._handle(happened, len(frame))
        self.wake()  # a proof, acks of what was seen before, what waited for the welcome

    async def _write(self, websocket: ClientConnection) -> None:
        try:
            while True:
                frame = self._session.next_frame()
                if frame is not None:
                    await websocket.send(frame, text=self._is_text)
                    continue
                self._all_written.set()
                self._something_to_write.clear()
                await self._something_to_write.wait()
        except ConnectionClosed:
            return  # the reader sees it too


async def _hang_up(websocket: ClientConnection) -> None:
    """Close, and read on meanwhile: the answer to the close may stand behind many frames."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(websocket.close())
        try:
            while True:
                await websocket.recv(decode=False)
        except ConnectionClosed:
            pass
