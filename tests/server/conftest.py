"""Served relays: without sockets, and on a free port of this machine."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as dial_websocket

from tests.harness.listening_relay import ListeningRelay, served_settings, sigterm_ignored
from tests.server.sessions.memory_server import MemoryServer, ServerLauncher
from tests.server.sessions.raw_agent import RawAgent
from tests.server.sessions.transports import MemoryTransport, SocketTransport
from waypost.client.identity import Identity
from waypost.server.server import Listen
from waypost.testing import ManualClock
from waypost.wire.frames import JSON_PROTOCOL


async def dial(address: str, protocol: str = JSON_PROTOCOL, **more: Any) -> RawAgent:
    """Open a WebSocket on which the agent has not sent anything yet."""
    url = f"ws://{address}/v1/connect"
    more = {"subprotocols": [protocol], "compression": None, "proxy": None, **more}
    return RawAgent(SocketTransport(await dial_websocket(url, **more), address), protocol)


class SocketRelay(ListeningRelay):
    """A relay on a port, and raw agents that connect to it."""

    async def dial(self, protocol: str = JSON_PROTOCOL, **more: Any) -> RawAgent:
        return await dial(self.address, protocol, **more)

    async def connect(self, subject: str, *, receive: str = "push", **more: Any) -> RawAgent:
        """Connect and authenticate an agent with a new key."""
        agent = await self.dial(**more)
        await agent.authenticate(Identity.new(subject), receive=receive)
        return agent


ServeRelay = Callable[..., Awaitable[SocketRelay]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def launcher(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ServerLauncher]:
    opened = ServerLauncher(tmp_path / "data", clock)
    yield opened
    await opened.close()


@pytest.fixture
async def server(launcher: ServerLauncher) -> MemoryServer:
    """A server without a socket and without rate limit; other limits have their defaults."""
    return await launcher.open()


@pytest.fixture
def identities() -> Callable[[str], Identity]:
    """The same keys for the same subject."""
    known: dict[str, Identity] = {}

    def get(subject: str) -> Identity:
        if subject not in known:
            known[subject] = Identity.new(subject)
        return known[subject]

    return get


@pytest.fixture
def open_agent(server: MemoryServer) -> Callable[..., RawAgent]:
    """Open connections in memory on which the agent has not sent anything yet."""

    def call(protocol: str | None = JSON_PROTOCOL) -> RawAgent:
        transport = MemoryTransport(server.context, protocol)
        return RawAgent(transport, protocol or JSON_PROTOCOL)

    return call


@asynccontextmanager
async def serving(data: Path) -> AsyncIterator[ServeRelay]:
    """Give a function that serves the relay of `data`; its keywords are fields of `Settings`."""
    started: list[SocketRelay] = []

    async def start(listen: Listen | None = None, **fields: Any) -> SocketRelay:
        while started:
            await started.pop().stop()
        relay = SocketRelay(data, served_settings(**fields))
        relay.listen = listen or relay.listen
        started.append(relay)
        await relay.start()
        return relay

    with sigterm_ignored():
        try:
            yield start
        finally:
            for relay in started:
                await relay.stop()


@pytest.fixture
async def serve_relay(tmp_path: Path) -> AsyncIterator[ServeRelay]:
    async with serving(tmp_path / "data") as start:
        yield start


@pytest.fixture
async def served(serve_relay: ServeRelay) -> SocketRelay:
    """A served relay without a rate limit."""
    return await serve_relay()
