"""A relay served by this process on a free port: for tests of clients and of the WebSocket."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from waypost import RateLimitConfig, Settings
from waypost.policy.names import NamesConfig
from waypost.relay.clock import Clock, system_clock
from waypost.server.context import SERVED_SETTINGS, ServeOptions, ServerContext
from waypost.server.server import Listen, open_context, serve


def served_settings(**fields: Any) -> Settings:
    """Return the settings of a served relay without rate limit and without syncs to disk."""
    defaults: dict[str, Any] = {
        "storage": "journal",
        "durability": "async",  # these tests are not about power cuts
        "watch_files": False,
        "rate_limit": RateLimitConfig(enabled=False),
        "names": NamesConfig(new_per_minute=100_000, new_per_address_minute=100_000),
    }
    return msgspec.structs.replace(SERVED_SETTINGS, **{**defaults, **fields})


class ListeningRelay:
    """One data directory served on one port; it can be stopped and started again."""

    def __init__(self, data_dir: Path, settings: Settings) -> None:
        self.settings = settings
        self.options = ServeOptions()
        self.listen = Listen(port=0)
        self.clock: Clock = system_clock
        self.url = ""
        self.data_dir = data_dir
        self._stack = AsyncExitStack()
        self._context: ServerContext | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def context(self) -> ServerContext:
        assert self._context is not None, "the relay is not running"
        return self._context

    @property
    def address(self) -> str:
        """Host and port, as in `127.0.0.1:7171`."""
        return self.url.removeprefix("http://")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2] or 0)

    async def start(self) -> None:
        opening = open_context(
            self.data_dir, self.options, settings=self.settings, clock=self.clock
        )
        self._context = await self._stack.enter_async_context(opening)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        listen = msgspec.structs.replace(self.listen, port=self.port)
        self._task = asyncio.create_task(serve(self.context, listen, ready.set_result))
        await asyncio.wait([ready, self._task], return_when=asyncio.FIRST_COMPLETED)
        self.url = ready.result()

    async def stop(self) -> None:
        """Stop as after SIGTERM; do nothing if it is not running."""
        if self._task is not None:
            if not self._task.done():
                signal.raise_signal(signal.SIGTERM)
            await self._task
            self._task = None
        await self._stack.aclose()
        self._context = None

    def waiting(self, subject: str) -> int:
        """Return how many messages `subject` has not acknowledged yet."""
        mailbox = self.context.relay._runtime.ledger.state.mailboxes.get(subject)
        return len(mailbox.live) if mailbox is not None else 0


@contextmanager
def sigterm_ignored() -> Iterator[None]:
    """Survive the SIGTERM of `stop`: the server passes it on to the handler before its own."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@asynccontextmanager
async def listening(
    data_dir: Path, *, listen: Listen | None = None, **fields: Any
) -> AsyncIterator[ListeningRelay]:
    """Serve the relay of `data_dir` until the block ends; keywords are fields of `Settings`."""
    relay = ListeningRelay(data_dir, served_settings(**fields))
    relay.listen = listen or relay.listen
    with sigterm_ignored():
        try:
            await relay.start()
            yield relay
        finally:
            await relay.stop()
