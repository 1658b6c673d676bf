"""A relay being served: without sockets, and on a free port of this machine."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as dial_websocket

from tests.server.sessions.agents import RawAgent
from tests.server.sessions.sessions_harness import House, Room, served_settings
from tests.server.sessions.transports import PretendedLine, SocketLine
from waypost.client.identity import Identity
from waypost.server.context import ServeOptions, ServerContext
from waypost.server.server import Listen, open_context, serve
from waypost.testing import ManualClock
from waypost.wire.frames import JSON_PROTOCOL


class Served:
    """A relay that listens, until `stop`."""

    def __init__(self, services: ServerContext, address: str, task: "asyncio.Task[None]") -> None:
        self.services = services
        self.address = address
        self._task = task

    async def dial(self, protocol: str = JSON_PROTOCOL, **more: Any) -> RawAgent:
        """A connection on which nobody has said anything yet."""
        url = f"ws://{self.address}/v1/connect"
        more = {"subprotocols": [protocol], "compression": None, "proxy": None, **more}
        return RawAgent(SocketLine(await dial_websocket(url, **more), self.address), protocol)

    async def connect(self, subject: str, *, receive: str = "push", **more: Any) -> RawAgent:
        """An agent with a key of its own, let in."""
        agent = await self.dial(**more)
        await agent.log_in(Identity.new(subject), receive=receive)
        return agent

    async def stop(self) -> None:
        """What a signal to the process does."""
        if not self._task.done():
            signal.raise_signal(signal.SIGTERM)
        await self._task


ServeRelay = Callable[..., Awaitable[Served]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def house(tmp_path: Path, clock: ManualClock) -> AsyncIterator[House]:
    opened = House(tmp_path / "data", clock)
    yield opened
    await opened.close()


@pytest.fixture
async def room(house: House) -> Room:
    """A served relay without a socket, no rate limit, the limits otherwise as they come."""
    return await house.open()


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
def ring(room: Room) -> Callable[..., RawAgent]:
    """Pretended connections to the room, on which nobody has said anything yet."""

    def call(protocol: str | None = JSON_PROTOCOL) -> RawAgent:
        line = PretendedLine(room.services, protocol)
        return RawAgent(line, protocol or JSON_PROTOCOL)

    return call


@asynccontextmanager
async def serving(data: Path) -> AsyncIterator[ServeRelay]:
    """Gives what serves the relay on `data`; its keywords are fields of `Settings`."""
    # The server passes the signal that stopped it on to whoever handled it before.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    async with AsyncExitStack() as stack:

        async def start(options: ServeOptions | None = None, **fields: Any) -> Served:
            await stack.aclose()
            opening = open_context(data, options, settings=served_settings(**fields))
            services = await stack.enter_async_context(opening)
            ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(serve(services, Listen(port=0), ready.set_result))
            await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
            relay = Served(services, ready.result().removeprefix("http://"), task)
            stack.push_async_callback(relay.stop)
            return relay

        yield start
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
async def serve_relay(tmp_path: Path) -> AsyncIterator[ServeRelay]:
    async with serving(tmp_path / "data") as start:
        yield start


@pytest.fixture
async def served(serve_relay: ServeRelay) -> Served:
    """A served relay without a rate limit."""
    return await serve_relay()
