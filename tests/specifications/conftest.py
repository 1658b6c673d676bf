"""Relays as users have them: in their own process, and on a port. Clocks are advanced by hand."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.harness.listening_relay import sigterm_ignored
from tests.specifications.served_relay import ServedRelay
from waypost import Relay, Settings
from waypost.testing import ManualClock

Start = Callable[..., Awaitable[Relay]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def served(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ServedRelay]:
    """A directory to be served on a port; a test starts it, with its settings."""
    relay = ServedRelay(tmp_path / "data", clock)
    with sigterm_ignored():
        try:
            yield relay
        finally:
            await relay.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def start(data: Path, clock: ManualClock) -> AsyncIterator[Start]:
    """Open a relay in this process after closing the one before; keywords are its settings."""
    opened: list[Relay] = []

    async def open_relay(**fields: object) -> Relay:
        while opened:
            await opened.pop().close()
        settings = Settings(**{"watch_files": False, "durability": "async", **fields})
        opened.append(await Relay(data, settings=settings, clock=clock).open())
        return opened[-1]

    yield open_relay
    for relay in opened:
        await relay.close()
