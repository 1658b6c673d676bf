"""A server stops at once, not when it looks around the next time, and without errors."""

import asyncio
import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from tests.eventually import eventually
from tests.harness.listening_relay import listening
from tests.server.sockets.raw_connection import UPGRADE, RawConnection
from waypost.relay.errors import RelayStopped
from waypost.server.server import Listen, serve_app


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


class SlowHandshakes:
    """An application that ends just when the server rejects the WebSocket it has not accepted."""

    connections_max = 16

    def __init__(self) -> None:
        self.begun, self.failing, self.released = (asyncio.Event() for _ in range(3))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.set()
        await self.released.wait()

    def limit_sessions(self, sessions_max: int) -> None: ...
    def disconnect_all(self) -> None: ...

    async def wait_until_empty(self) -> None:
        self.released.set()  # the server goes on to the open connections before this has an effect

    async def failure(self) -> str:
        await self.failing.wait()
        return "told to"


async def test_a_handshake_under_way_is_rejected_once_when_a_server_stops() -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    app, urls = SlowHandshakes(), list[str]()
    serving = asyncio.create_task(serve_app(app, app, Listen(port=0), urls.append))
    await eventually(lambda: urls, "the server")
    address = urls[0].removeprefix("http://")
    connection = await RawConnection.open(address)
    await connection.send(UPGRADE.format(address=address, more="").encode())
    await app.begun.wait()
    app.failing.set()
    assert (await connection.response()).status == 500
    with pytest.raises(RelayStopped, match="told to"):
        await serving
    connection.close()
    gc.collect()
    assert problems == []
