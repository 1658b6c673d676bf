"""A signal stops a server at once, not when it looks around the next time."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.harness.listening_relay import listening


@pytest.fixture(autouse=True)
def _without_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server look once, and then later than any test."""
    monkeypatch.setattr("waypost.server.sockets.server.TICK_S", 3600.0)


async def test_a_signal_stops_a_server_at_once(tmp_path: Path) -> None:
    async with asyncio.timeout(60), listening(tmp_path):
        pass


async def test_a_signal_from_outside_wakes_a_server(tmp_path: Path) -> None:
    async with asyncio.timeout(60), listening(tmp_path) as relay:
        serving = relay._task
        assert serving is not None
        await asyncio.to_thread(os.kill, os.getpid(), signal.SIGTERM)
        await serving
