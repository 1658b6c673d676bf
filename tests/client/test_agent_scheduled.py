"""Scheduled messages of the Python clients: sent, listed and cancelled over the socket."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.client.conftest import Dial
from tests.harness.listening_relay import ListeningRelay
from waypost.client import Agent, Identity, blocking
from waypost.policy.errors import InvalidInput


@pytest.mark.parametrize("protocol", ["json", "msgpack"])
async def test_a_connected_agent_gets_a_message_when_it_is_due(
    dial: Dial, bob: Agent, protocol: str
) -> None:
    async with dial("agent.ann", encoding=protocol) as ann:
        begin = datetime.now(UTC)
        sent = await ann.send("agent.bob", "after", delay=timedelta(seconds=0.2))
        got = await bob.receive(60)
        assert (got.id, got.payload) == (sent.message_id, "after")
        assert datetime.now(UTC) - begin >= timedelta(seconds=0.2)
        at = datetime.now(UTC) + timedelta(seconds=0.2)
        await ann.send("agent.bob", "at", deliver_at=at)
        assert (await bob.receive(60)).payload == "at"
        assert datetime.now(UTC) >= at


@pytest.mark.parametrize("protocol", ["json", "msgpack"])
async def test_an_agent_lists_and_cancels_what_it_has_scheduled(
    dial: Dial, bob: Agent, protocol: str
) -> None:
    async with dial("agent.ann", encoding=protocol) as ann:
        late = await ann.send("agent.bob", 1, delay=60)
        soon = await ann.send("agent.bob", 2, delay=30)
        await bob.send("agent.ann", 3, delay=30)
        shown = await ann.scheduled()
        assert [one.id for one in shown] == [soon.message_id, late.message_id]
        assert (shown[0].sender, shown[0].endpoint) == ("agent.ann", "agent.bob")
        assert [one.id for one in await ann.scheduled(1)] == [soon.message_id]
        assert await bob.cancel(soon.message_id) == []
        assert await ann.cancel([soon.message_id, "unknown"]) == [soon.message_id]
        assert [one.id for one in await ann.scheduled()] == [late.message_id]


async def test_an_invalid_time_is_rejected_before_it_is_sent(ann: Agent) -> None:
    far = datetime.now(UTC) + timedelta(days=10_000)
    for when in (
        {"delay": -1},
        {"delay": 1e10},
        {"delay": 1, "deliver_at": far},
        {"deliver_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - without a time zone
    ):
        with pytest.raises(InvalidInput):
            await ann.send("agent.bob", 1, **when)
    with pytest.raises(InvalidInput):
        await ann.send_many([{"subject": "agent.bob", "payload": 1, "delay": -1}])
    with pytest.raises(InvalidInput):
        await ann.scheduled(0)
    with pytest.raises(InvalidInput):
        await ann.cancel(["x"] * 1001)


async def test_a_time_beyond_the_relays_limit_is_rejected_by_the_relay(ann: Agent) -> None:
    with pytest.raises(InvalidInput, match="maxScheduleAheadMs"):
        await ann.send("agent.bob", 1, delay=8 * 86_400)


async def test_many_messages_are_scheduled_at_once(ann: Agent, bob: Agent) -> None:
    await ann.send_many(
        [{"subject": "agent.bob", "payload": n, "delay": 0.3 - n / 10} for n in range(3)]
    )
    assert [(await bob.receive(60)).payload for _ in range(3)] == [2, 1, 0]


async def test_the_blocking_client_schedules_lists_and_cancels(relay: ListeningRelay) -> None:
    def act() -> tuple[list[str], list[str], list[object]]:
        with blocking.connect(relay.url, Identity.new("agent.eve")) as eve:
            eve.send("agent.eve", "kept", delay=0.1)
            dropped = eve.send("agent.eve", "dropped", delay=60)
            listed = [one.id for one in eve.scheduled()][-1:]
            cancelled = eve.cancel(dropped.message_id)
            return listed, cancelled, [eve.receive(60).payload]

    listed, cancelled, got = await asyncio.to_thread(act)
    assert listed == cancelled
    assert got == ["kept"]
