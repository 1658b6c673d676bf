"""A relay on a port, a proxy in front of it that can cut connections, and connected agents."""

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.client.tcp_proxy import TcpProxy
from tests.harness.listening_relay import ListeningRelay, listening
from waypost import QosConfig
from waypost.client import Agent, ClientOptions, Identity, connect
from waypost.server.server import Listen

WITHOUT_TIERS = {"qos": QosConfig(enabled=False)}
Dial = Callable[..., AbstractAsyncContextManager[Agent]]


@pytest.fixture
def proxy_listener() -> Iterator[socket.socket]:
    """The listening socket of the proxy: the relay must know its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
async def relay(tmp_path: Path, proxy_listener: socket.socket) -> AsyncIterator[ListeningRelay]:
    port = proxy_listener.getsockname()[1]
    listen = Listen(origins=("127.0.0.1", f"127.0.0.1:{port}"))
    async with listening(tmp_path / "data", listen=listen, **WITHOUT_TIERS) as running:
        yield running


@pytest.fixture
async def proxy(relay: ListeningRelay, proxy_listener: socket.socket) -> AsyncIterator[TcpProxy]:
    opened = TcpProxy(relay, proxy_listener)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def identities() -> Callable[[str], Identity]:
    """The same keys for the same subject."""
    known: dict[str, Identity] = {}

    def get(subject: str) -> Identity:
        return known.setdefault(subject, Identity.new(subject))

    return get


@pytest.fixture
def dial(relay: ListeningRelay, identities: Callable[[str], Identity]) -> Dial:
    """Connects as a subject; `url` other than the relay's own, options by name."""

    def connected(subject: str, url: str = "", **options: Any) -> Any:
        return connect(url or relay.url, identities(subject), options=ClientOptions(**options))

    return connected


@pytest.fixture
async def ann(dial: Dial) -> AsyncIterator[Agent]:
    async with dial("agent.ann") as agent:
        yield agent


@pytest.fixture
async def bob(dial: Dial) -> AsyncIterator[Agent]:
    async with dial("agent.bob") as agent:
        yield agent


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened
