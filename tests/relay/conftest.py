"""Relays on real directories, with a clock that tests advance by hand."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from waypost import Relay, Settings
from waypost.testing import ManualClock

Start = Callable[..., Awaitable[Relay]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def start(data: Path, clock: ManualClock) -> AsyncIterator[Start]:
    """Open a relay on `data` after closing the previous one.

    Keywords are fields of `Settings`, or `create_mailbox`.
    """
    opened: list[Relay] = []

    async def open_relay(
        *, create_mailbox: Callable[[str], bool] = lambda subject: False, **fields: object
    ) -> Relay:
        if opened:
            await opened.pop().close()
        # Most tests are about what is decided, not about what survives a power cut.
        fields = {"watch_files": False, "durability": "async", **fields}
        settings = Settings(**fields)
        relay = Relay(data, settings=settings, clock=clock, create_mailbox=create_mailbox)
        opened.append(await relay.open())
        return relay

    yield open_relay
    for relay in opened:
        await relay.close()


@pytest.fixture
async def relay(start: Start) -> Relay:
    """A relay with the default limits and one endpoint, `agent.a`."""
    opened = await start()
    opened.register_endpoint("agent.a")
    return opened
