"""What the relay keeps of a connection while its agent does nothing."""

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from tests.server.conftest import SocketRelay
from tests.server.sessions.raw_agent import RawAgent
from waypost.client.identity import Identity

AGENTS = 10
HEADERS = {f"X-Large-{number}": "x" * 4000 for number in range(5)}
HEADERS_BYTES = sum(map(len, HEADERS.values()))


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def connect_all(
    relay: SocketRelay, name: str, headers: dict[str, str]
) -> tuple[list[RawAgent], int]:
    """Connect agents; return them, and by how much the memory of both sides has grown."""
    before = traced_bytes()
    agents = []
    for number in range(AGENTS):
        agent = await relay.dial(additional_headers=headers)
        await agent.authenticate(Identity.new(f"agent.{name}-{number}"))
        agents.append(agent)
    return agents, traced_bytes() - before


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.usefixtures("traced")
async def test_the_headers_of_an_authenticated_agent_are_not_kept(served: SocketRelay) -> None:
    first, _ = await connect_all(served, "first", {})
    plain, plain_bytes = await connect_all(served, "plain", {})
    large, large_bytes = await connect_all(served, "large", HEADERS)
    # The client has the same text for all of its connections.
    assert large_bytes - plain_bytes < AGENTS * HEADERS_BYTES / 2
    for agent in (*first, *plain, *large):
        await agent.disconnect()
