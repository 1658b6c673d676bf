"""Messages that are not acknowledged come later and later, and in the end no more."""

from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import UNLIMITED, drafts, events, payloads, pending, send
from waypost import Envelope, Relay
from waypost.policy.redelivery import RedeliveryConfig
from waypost.relay.delivery.consumer import Consumer
from waypost.testing import ManualClock

MINUTE_MS = 60_000
TWICE = RedeliveryConfig(max_deliveries=2)
ENDLESS = RedeliveryConfig(max_deliveries=0)


async def open_with(start: Start, config: RedeliveryConfig, count: int = 1) -> Relay:
    """Open a relay with this many pending messages, 0 and up, for `agent.a`."""
    relay = await start(redelivery=config, rate_limit=UNLIMITED, storage="journal")
    if relay.get_endpoint("agent.a") is None:
        relay.register_endpoint("agent.a")
        for number in range(count):
            await send(relay, number)
    return relay


def attach(relay: Relay) -> Consumer:
    return relay.attach("agent.a", lambda: None)


async def dead(relay: Relay) -> list[tuple[object, str]]:
    return [(one.envelope.payload, one.reason) for one in await relay.dead_letters()]


async def fail_until_dead(relay: Relay, clock: ManualClock) -> int:
    """Lease and nack one message until it is a dead letter; return the number of deliveries."""
    deliveries = 0
    for _ in range(20):
        for envelope in await relay.lease("agent.a"):
            deliveries += 1
            await relay.nack("agent.a", envelope.id)
        clock.advance_ms(MINUTE_MS)
    return deliveries


async def test_a_message_that_always_fails_is_a_dead_letter_after_five_deliveries(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay, "poison")
    assert await fail_until_dead(relay, clock) == 5
    assert await dead(relay) == [("poison", "max deliveries exceeded (5/5)")]
    assert relay.metrics().breakers["agent.a"].consecutive_failures == 5


async def test_the_history_shows_every_attempt_and_the_end(
    relay: Relay, clock: ManualClock
) -> None:
    sent = await send(relay, "poison")
    await fail_until_dead(relay, clock)
    texts = [step.text for step in (await relay.explain(sent.message_id)).steps]
    assert "delivered, attempt 5, via lease" in texts
    assert texts[-1] == "dead letter: max deliveries exceeded (5/5)"


async def test_the_second_redelivery_waits_and_the_third_waits_longer(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay)
    waits = []
    for _ in range(4):
        waited = 0
        while not (got := await relay.lease("agent.a")):
            clock.advance_ms(50)
            waited += 50
        waits.append(waited)
        await relay.nack("agent.a", got[0].id)
    assert waits[:2] == [0, 0]
    assert 750 <= waits[2] <= 1050
    assert 1500 <= waits[3] <= 2050


async def test_a_longer_delay_of_the_consumer_is_kept(relay: Relay, clock: ManualClock) -> None:
    await send(relay)
    for delay in (0, 30):
        await relay.nack("agent.a", [one.id for one in await relay.lease("agent.a")], delay)
    clock.advance_ms(29_999)
    assert await relay.lease("agent.a") == []
    clock.advance_ms(1)
    assert len(await relay.lease("agent.a")) == 1


async def test_leases_that_time_out_count(start: Start, clock: ManualClock) -> None:
    relay = await open_with(start, TWICE)
    for _ in range(2):
        assert len(await relay.lease("agent.a")) == 1
        clock.advance_ms(30_000)
    assert await dead(relay) == [(0, "max deliveries exceeded (2/2): lease timed out")]


async def test_without_an_end_a_message_comes_back_less_and_less_often(
    start: Start, clock: ManualClock
) -> None:
    relay = await open_with(start, ENDLESS)
    deliveries = 0
    for _ in range(3_600):
        for envelope in await relay.lease("agent.a"):
            deliveries += 1
            await relay.nack("agent.a", envelope.id)
        clock.advance_ms(1_000)
    assert 10 < deliveries < 30


async def test_of_the_messages_in_flight_only_the_oldest_counts_at_a_disconnect(
    start: Start, clock: ManualClock
) -> None:
    relay = await open_with(start, TWICE, 3)
    for _ in range(2):
        consumer = attach(relay)
        assert len(consumer.take(9)) == 3
        consumer.detach()
        await relay.idle()
    assert await dead(relay) == [(0, "max deliveries exceeded (2/2): the connection ended")]
    assert payloads(await relay.lease("agent.a")) == [1, 2]


async def test_after_repeated_disconnects_the_mailbox_pauses_and_the_order_holds(
    start: Start, clock: ManualClock
) -> None:
    relay = await open_with(start, ENDLESS, 3)
    for _ in range(2):
        consumer = attach(relay)
        consumer.take(9)
        consumer.detach()
        await relay.idle()
    consumer = attach(relay)
    assert consumer.is_paused()
    assert consumer.take(9) == []
    clock.advance_ms(1_000)
    assert not consumer.is_paused()
    assert [bytes(one.envelope.payload) for one in consumer.take(9)] == [b"0", b"1", b"2"]


async def test_an_acknowledgement_ends_the_pause(start: Start) -> None:
    relay = await open_with(start, ENDLESS, 3)
    for _ in range(2):
        consumer = attach(relay)
        held = consumer.take(9)
        consumer.detach()
        await relay.idle()
    assert await relay.lease("agent.a") == []
    await relay.ack("agent.a", held[2].envelope.id)
    assert payloads(await relay.lease("agent.a")) == [0, 1]


async def test_released_messages_are_not_counted(start: Start, data: Path) -> None:
    relay = await open_with(start, TWICE)
    for _ in range(10):
        (envelope,) = await relay.lease("agent.a")
        relay.claims.release("agent.a", envelope.id)
        await relay.idle()
    assert await dead(relay) == []
    assert {event.get("attempt", 1) for event in events(data, "leased")} == {1}


async def test_messages_released_again_and_again_pause_their_mailbox(
    start: Start, clock: ManualClock
) -> None:
    relay = await open_with(start, ENDLESS, 0)
    await relay.publish_many(drafts(500))
    deliveries = 0
    for _ in range(1_000):
        got = await relay.lease("agent.a", limit=1000)
        deliveries += len(got)
        relay.claims.release("agent.a", [one.id for one in got])
        await relay.idle()
        clock.advance_ms(1)
    assert deliveries < 3_000


async def test_a_waiting_lease_gets_its_messages_when_the_pause_ends(
    start: Start, clock: ManualClock
) -> None:
    relay = await open_with(start, ENDLESS)
    for _ in range(2):
        consumer = attach(relay)
        consumer.take(9)
        consumer.detach()
        await relay.idle()
    arrivals: list[None] = []
    relay.attach("agent.a", lambda: arrivals.append(None))
    clock.advance_ms(1_000)
    assert arrivals
    assert payloads(await relay.lease("agent.a")) == [0]


@pytest.mark.parametrize("taking", ["lease", "connection"])
async def test_a_restart_of_the_relay_counts_for_nothing(
    start: Start, data: Path, taking: str
) -> None:
    for _ in range(4):
        relay = await open_with(start, RedeliveryConfig(max_deliveries=1))
        if taking == "lease":
            assert len(await relay.lease("agent.a")) == 1
        else:
            assert len(attach(relay).take(9)) == 1
    relay = await open_with(start, TWICE)
    assert await dead(relay) == []
    assert pending(relay) == 1
    assert {event.get("attempt", 1) for event in events(data, "leased")} == {1}


async def test_counts_survive_a_restart(start: Start) -> None:
    for _ in range(2):
        relay = await open_with(start, TWICE)
        (envelope,) = await relay.lease("agent.a")
        await relay.nack("agent.a", envelope.id)
    assert await dead(relay) == [(0, "max deliveries exceeded (2/2)")]


async def test_a_redriven_message_is_counted_from_the_start(
    relay: Relay, clock: ManualClock
) -> None:
    sent = await send(relay)
    assert await fail_until_dead(relay, clock) == 5
    await relay.redrive(sent.message_id)
    assert await fail_until_dead(relay, clock) == 5


async def test_a_handler_gets_messages_of_a_mailbox_that_pauses(start: Start) -> None:
    relay = await open_with(start, ENDLESS)
    for _ in range(2):
        consumer = attach(relay)
        consumer.take(9)
        consumer.detach()
        await relay.idle()
    seen: list[Envelope] = []
    relay.subscribe("agent.a", seen.append)
    await relay.idle()
    assert payloads(seen) == [0]
