"""Leases of a connected agent: kept while a block runs, extended on request, else they run out."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.client.session_harness import SessionHarness, message, welcome
from tests.eventually import eventually, eventually_blocking
from tests.harness.listening_relay import ListeningRelay, listening
from waypost import InvalidInput
from waypost.client import Agent, ClientOptions, Identity, blocking, connect
from waypost.policy.bounds import lease_extension_max_s
from waypost.wire import frames

TIMEOUT_MS = 600


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[ListeningRelay]:
    """A relay with a short lease timeout."""
    async with listening(tmp_path / "data", lease_timeout_ms=TIMEOUT_MS) as running:
        yield running


@pytest.fixture
async def bob(relay: ListeningRelay) -> AsyncIterator[Agent]:
    async with connect(relay.url, Identity.new("agent.bob")) as agent:
        yield agent


def counted(relay: ListeningRelay, kind: str) -> int:
    return relay.context.relay.inspect().counts[kind]


async def send(relay: ListeningRelay, payload: object = "work") -> None:
    result = await relay.context.relay.publish("agent.bob", payload, sender="agent.ann")
    assert result.delivered_to == 1


async def test_a_block_that_outlasts_the_timeout_keeps_its_message(
    relay: ListeningRelay, bob: Agent
) -> None:
    await send(relay)
    async with await bob.receive(60):
        await eventually(lambda: counted(relay, "extended") >= 5)
    await eventually(lambda: relay.waiting("agent.bob") == 0)
    assert (counted(relay, "returned"), counted(relay, "leased")) == (0, 1)


async def test_a_short_block_extends_nothing(relay: ListeningRelay, bob: Agent) -> None:
    for _ in range(50):
        await send(relay)
        async with await bob.receive(60):
            pass
    await eventually(lambda: relay.waiting("agent.bob") == 0)
    assert counted(relay, "extended") <= 1


async def test_a_block_that_raises_returns_its_message(relay: ListeningRelay, bob: Agent) -> None:
    await send(relay)
    with pytest.raises(ValueError, match="broken"):
        async with await bob.receive(60):
            raise ValueError("broken")
    again = await bob.receive(60)
    assert (again.payload, counted(relay, "returned")) == ("work", 1)


async def test_a_block_is_kept_no_longer_than_allowed(relay: ListeningRelay) -> None:
    options = ClientOptions(extend_max_s=0.5)
    async with connect(relay.url, Identity.new("agent.bob"), options=options) as bob:
        await send(relay)
        async with await bob.receive(60):
            await eventually(lambda: relay.context.hub.stuck_count() == 1)
        await eventually(lambda: relay.waiting("agent.bob") == 0)


async def test_a_message_without_a_block_runs_out_and_a_late_ack_counts(
    relay: ListeningRelay, bob: Agent
) -> None:
    await send(relay)
    message = await bob.receive(60)
    await eventually(lambda: relay.context.hub.stuck_count() == 1)
    await send(relay, "next")
    await message.ack()
    assert (await bob.receive(60)).payload == "next"
    assert (relay.context.hub.stuck_count(), relay.waiting("agent.bob")) == (0, 1)


async def test_an_extension_on_request_reaches_the_relay(relay: ListeningRelay, bob: Agent) -> None:
    await send(relay)
    message = await bob.receive(60)
    await message.extend(3600)
    await eventually(lambda: counted(relay, "extended") == 1)
    await message.ack()
    await message.extend(3600)
    await eventually(lambda: relay.waiting("agent.bob") == 0)
    assert counted(relay, "extended") == 1


@pytest.mark.parametrize("seconds", [-1, lease_extension_max_s + 1, float("nan")])
async def test_an_extension_has_bounds(relay: ListeningRelay, bob: Agent, seconds: float) -> None:
    await send(relay)
    message = await bob.receive(60)
    with pytest.raises(InvalidInput, match="seconds must be 0 to"):
        await message.extend(seconds)


async def test_an_agent_with_messages_of_blocked_senders_only_is_not_stuck(
    relay: ListeningRelay, bob: Agent
) -> None:
    bob.block("agent.ann")
    await send(relay)
    await eventually(lambda: bob.blocked_count == 1)
    await eventually(lambda: relay.waiting("agent.bob") == 0)
    assert counted(relay, "returned") == 0


async def test_the_blocking_client_keeps_a_message_while_its_block_runs(
    relay: ListeningRelay,
) -> None:
    def program() -> None:
        with blocking.connect(relay.url, Identity.new("agent.bob")) as bob:
            for message in bob:
                with message:
                    eventually_blocking(lambda: counted(relay, "extended") >= 5)
                message.extend(1)
                return

    running = asyncio.create_task(asyncio.to_thread(program))
    await eventually(lambda: relay.context.hub.is_connected("agent.bob"))
    await send(relay)
    await running
    await eventually(lambda: relay.waiting("agent.bob") == 0)
    assert counted(relay, "returned") == 0


def test_a_relay_without_deadlines_gets_no_extensions() -> None:
    harness = SessionHarness()
    harness.connect(welcome())
    harness.receive_frame(message("m-1"))
    harness.session.extend("m-1", 60)
    assert (harness.session.lease_timeout_s, harness.written()) == (0, [])


def test_a_message_that_the_application_does_not_hold_is_not_extended() -> None:
    harness, limits = SessionHarness(), welcome()
    limits.lease_timeout_ms = 30_000
    harness.connect(limits)
    harness.receive_frame(message("m-1"))
    for message_id in ("m-1", "m-2"):
        harness.session.extend(message_id, 60)
    assert harness.written() == [frames.Extend(ids=["m-1"], seconds=60)]
