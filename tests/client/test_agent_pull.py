"""Agents that pull: fetch, and the two passes of sync."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.client.conftest import Dial
from tests.eventually import event_loop_turns, eventually
from tests.harness.listening_relay import ListeningRelay
from waypost import InvalidInput
from waypost.client import Agent, WrongReceiveMode


@pytest.fixture
async def puller(dial: Dial) -> AsyncIterator[Agent]:
    async with dial("agent.bob", receive="pull") as agent:
        yield agent


async def round_trip(agent: Agent) -> None:
    """Return once the relay has read everything that `agent` has requested so far."""
    await event_loop_turns()
    await agent.send("agent.other", None)


async def test_sync_yields_small_messages_first_then_the_rest(
    ann: Agent, puller: Agent, relay: ListeningRelay
) -> None:
    sizes = [10, 20_000, 10, 30_000, 10]
    for number, size in enumerate(sizes):
        await ann.send("agent.bob", {"n": number, "fill": "x" * size})
    got = []
    async for message in puller.sync(small_max_bytes=8192):
        got.append(message.payload["n"])
        await message.ack()
    assert got == [0, 2, 4, 1, 3]
    await eventually(lambda: relay.waiting("agent.bob") == 0)


async def test_sync_continues_until_the_mailbox_is_empty(ann: Agent, puller: Agent) -> None:
    await ann.send_many({"subject": "agent.bob", "payload": number} for number in range(120))
    got = []
    async for message in puller.sync():
        got.append(message.payload)
        await message.ack()
    assert got == list(range(120))


async def test_an_interrupted_sync_returns_the_rest(ann: Agent, puller: Agent) -> None:
    await ann.send_many({"subject": "agent.bob", "payload": number} for number in range(10))
    synced = puller.sync()
    first = await anext(synced)
    await first.ack()
    await synced.aclose()  # type: ignore[attr-defined]
    assert [message.payload async for message in puller.sync()] == list(range(1, 10))


async def test_nothing_is_pushed_to_an_agent_that_pulls(ann: Agent, puller: Agent) -> None:
    await ann.send("agent.bob", 1)
    with pytest.raises(WrongReceiveMode, match=r"sync\(\)"):
        async for _ in puller:
            pass
    with pytest.raises(WrongReceiveMode):
        await puller.receive(0.01)
    assert [one.payload for one in await puller.fetch()] == [1]


async def test_a_fetch_waits_for_the_first_message(ann: Agent, puller: Agent) -> None:
    fetching = asyncio.create_task(puller.fetch(wait=60))
    await round_trip(puller)
    assert not fetching.done()
    await ann.send("agent.bob", "at last")
    assert [one.payload for one in await fetching] == ["at last"]
    assert await puller.fetch(wait=0.01) == []


async def test_a_cancelled_fetch_keeps_no_messages(ann: Agent, puller: Agent) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await puller.fetch(wait=60)
    fetching = asyncio.create_task(puller.fetch(wait=60))
    await round_trip(puller)
    await ann.send("agent.bob", "still here")
    async with asyncio.timeout(60):
        assert [one.payload for one in await fetching] == ["still here"]


async def test_concurrent_fetches_run_one_after_another(ann: Agent, puller: Agent) -> None:
    fetching = [asyncio.create_task(puller.fetch(1, wait=60)) for _ in range(4)]
    await round_trip(puller)
    await ann.send_many({"subject": "agent.bob", "payload": number} for number in range(4))
    fetched = await asyncio.gather(*fetching)
    assert [one.payload for messages in fetched for one in messages] == [0, 1, 2, 3]


async def test_a_fetch_with_an_invalid_limit_is_rejected(puller: Agent) -> None:
    with pytest.raises(InvalidInput):
        await puller.fetch(0)


async def test_a_nacked_message_is_fetched_again(ann: Agent, puller: Agent) -> None:
    await ann.send("agent.bob", 1)
    [message] = await puller.fetch()
    await message.nack()
    assert [one.id for one in await puller.fetch(wait=60)] == [message.id]


async def test_a_fetched_message_has_the_tier_of_its_sender(ann: Agent, puller: Agent) -> None:
    await ann.send("agent.bob", "stranger")
    assert [one.tier for one in await puller.fetch(wait=60)] == [1]
    await puller.send("agent.ann", "who are you?")
    await ann.send("agent.bob", "friend")
    assert [one.tier for one in await puller.fetch(wait=60)] == [3]


async def test_a_message_to_a_connected_agent_that_pulls_did_not_wait(
    ann: Agent, dial: Dial
) -> None:
    early = await ann.send("agent.bob", "early")
    async with dial("agent.bob", receive="pull") as puller:
        late = await ann.send("agent.bob", "late")
        fetched = await puller.fetch()
        assert [(one.payload, one.was_stored) for one in fetched] == [
            ("early", True),
            ("late", False),
        ]
        for message in fetched:
            await message.ack()
        assert (await ann.delivered(early.message_id)).was_stored
        assert not (await ann.delivered(late.message_id)).was_stored
