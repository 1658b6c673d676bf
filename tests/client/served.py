"""A real served relay on a free port, and a wire to it that can be cut."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from waypost import QosConfig, RateLimitConfig, Settings
from waypost.server.context import ServeOptions, ServerContext
from waypost.server.server import SERVED_SETTINGS, Listen, open_context, serve

SETTINGS = msgspec.structs.replace(
    SERVED_SETTINGS,
    storage="journal",
    durability="async",  # nothing here is about power cuts
    watch_files=False,
    rate_limit=RateLimitConfig(enabled=False),
    qos=QosConfig(enabled=False),
)


class ServedRelay:
    """Served from one directory on one port, as often as it is started."""

    def __init__(self, data_dir: Path) -> None:
        self.settings: Settings = SETTINGS
        self.options = ServeOptions()
        self.url = ""
        self._data_dir = data_dir
        self._port = 0
        self._stack = AsyncExitStack()
        self._services: ServerContext | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def services(self) -> ServerContext:
        assert self._services is not None, "the relay is not running"
        return self._services

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self._port)

    async def start(self) -> None:
        opening = open_context(self._data_dir, self.options, settings=self.settings)
        self._services = await self._stack.enter_async_context(opening)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        listen = Listen(port=self._port)
        self._task = asyncio.create_task(serve(self.services, listen, ready.set_result))
        await asyncio.wait([ready, self._task], return_when=asyncio.FIRST_COMPLETED)
        self.url = ready.result()
        self._port = int(self.url.rpartition(":")[2])

    async def stop(self) -> None:
        """What a signal to the process does."""
        if self._task is not None:
            signal.raise_signal(signal.SIGTERM)
            await self._task
            self._task = None
        await self._stack.aclose()
        self._services = None

    def waiting(self, subject: str) -> int:
        """How many messages `subject` has not confirmed yet."""
        mailbox = self.services.relay.parts.ledger.state.mailboxes.get(subject)
        return len(mailbox.live) if mailbox is not None else 0


@asynccontextmanager
async def served(data_dir: Path) -> AsyncIterator[ServedRelay]:
    # The server passes the signal that stopped it on to whoever handled it before.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    relay = ServedRelay(data_dir)
    try:
        await relay.start()
        yield relay
    finally:
        await relay.stop()
        signal.signal(signal.SIGTERM, before)


class Wire:
    """A way to the relay that can be cut, and closed for a while.

    `connections` and `rejected` count attempts to connect, `carried` counts bytes both ways.
    """

    def __init__(self, relay: ServedRelay) -> None:
        self._relay = relay
        self._ends: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.is_closed = False
        self.connections = 0
        self.rejected = 0
        self.carried = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)

    async def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def cut(self) -> None:
        """Both ends see their connection reset; what was on its way is gone."""
        for end in self._ends:
            end.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_closed:
            self.rejected += 1
            writer.transport.abort()
            return
        self.connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._relay.address)
        except OSError:
            writer.transport.abort()
            return
        self._ends |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._carry(reader, far_writer))
                tasks.create_task(self._carry(far_reader, writer))
        finally:
            self._ends -= {writer, far_writer}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                self.carried += len(piece)
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
