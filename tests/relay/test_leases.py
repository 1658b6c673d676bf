"""Leases: at least once, in order, under the same id."""

import asyncio
from pathlib import Path

import pytest

from tests.relay.observing import (
    HOUR_MS,
    UNLIMITED,
    begun,
    drafts,
    events,
    files,
    payloads,
    pending,
    send,
)
from waypost import Envelope, InvalidInput, Relay, UnknownEndpoint
from waypost.testing import ManualClock


@pytest.fixture
async def stocked(relay: Relay) -> Relay:
    """A relay with five pending messages, 0 to 4, for `agent.a`."""
    for number in range(5):
        await send(relay, number)
    return relay


def ids(envelopes: list[Envelope]) -> list[str]:
    return [envelope.id for envelope in envelopes]


async def test_a_lease_gives_the_oldest_first(stocked: Relay) -> None:
    assert payloads(await stocked.lease("agent.a", limit=3)) == [0, 1, 2]
    assert payloads(await stocked.lease("agent.a")) == [3, 4]


async def test_a_leased_message_is_not_delivered_to_another(stocked: Relay) -> None:
    await stocked.lease("agent.a")
    assert await stocked.lease("agent.a") == []


async def test_an_acknowledged_message_is_removed(stocked: Relay) -> None:
    got = await stocked.lease("agent.a")
    assert await stocked.ack("agent.a", ids(got)) == 5
    assert stocked.metrics().total_messages == 0


async def test_acknowledging_twice_is_harmless(stocked: Relay) -> None:
    got = await stocked.lease("agent.a", limit=2)
    assert await stocked.ack("agent.a", ids(got)) == 2
    assert await stocked.ack("agent.a", ids(got)) == 0
    assert await stocked.ack("agent.a", "never-existed") == 0


async def test_one_id_may_be_given_as_a_string(stocked: Relay) -> None:
    (got,) = await stocked.lease("agent.a", limit=1)
    assert await stocked.ack("agent.a", got.id) == 1


async def test_the_same_id_twice_in_one_call_counts_once(stocked: Relay) -> None:
    (got,) = await stocked.lease("agent.a", limit=1)
    assert await stocked.ack("agent.a", [got.id, got.id]) == 1


async def test_a_message_may_be_acknowledged_without_a_lease(stocked: Relay) -> None:
    metrics = stocked.metrics()
    assert metrics.by_status["pending"] == 5
    got = await stocked.lease("agent.a", limit=1)
    await stocked.nack("agent.a", ids(got))
    assert await stocked.ack("agent.a", ids(got)) == 1
    assert payloads(await stocked.lease("agent.a")) == [1, 2, 3, 4]


async def test_a_returned_message_gets_its_old_queue_position(stocked: Relay) -> None:
    got = await stocked.lease("agent.a", limit=3)
    assert await stocked.nack("agent.a", ids(got)[1:2]) == 1
    assert payloads(await stocked.lease("agent.a")) == [1, 3, 4]


async def test_messages_returned_in_any_order_are_delivered_in_order(stocked: Relay) -> None:
    got = await stocked.lease("agent.a", limit=4)
    await stocked.nack("agent.a", [got[2].id, got[0].id, got[3].id])
    assert payloads(await stocked.lease("agent.a")) == [0, 2, 3, 4]


async def test_only_leased_messages_can_be_returned(stocked: Relay) -> None:
    got = await stocked.lease("agent.a", limit=1)
    await stocked.ack("agent.a", ids(got))
    assert await stocked.nack("agent.a", ids(got)) == 0


async def test_a_message_returned_with_a_delay_is_not_delivered_earlier(
    stocked: Relay, clock: ManualClock
) -> None:
    got = await stocked.lease("agent.a", limit=2)
    await stocked.nack("agent.a", got[0].id, delay=2.5)
    assert payloads(await stocked.lease("agent.a", limit=1)) == [2]
    clock.advance_ms(2_499)
    assert payloads(await stocked.lease("agent.a", limit=1)) == [3]
    clock.advance_ms(1)
    assert payloads(await stocked.lease("agent.a")) == [0, 4]


async def test_a_handler_gets_a_delayed_message_when_the_delay_ends(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay)
    got = await relay.lease("agent.a")
    seen: list[Envelope] = []
    relay.subscribe("agent.a", seen.append)
    await relay.nack("agent.a", ids(got), delay=60)
    await relay.idle()
    assert seen == []
    clock.advance_ms(60_000)
    await relay.idle()
    assert ids(seen) == ids(got)


async def test_a_lease_that_is_not_acknowledged_in_time_returns_under_the_same_id(
    start, clock: ManualClock
) -> None:
    relay = await start(lease_timeout_ms=30_000)
    relay.register_endpoint("agent.a")
    await send(relay)
    first = await relay.lease("agent.a")
    clock.advance_ms(29_999)
    assert await relay.lease("agent.a") == []
    clock.advance_ms(1)
    assert ids(await relay.lease("agent.a")) == ids(first)


async def test_each_attempt_is_counted_in_the_journal(
    relay: Relay, clock: ManualClock, data: Path
) -> None:
    await send(relay)
    for _ in range(3):
        await relay.lease("agent.a")
        clock.advance_ms(31_000)  # the second redelivery waits up to a second
    await relay.idle()
    assert [event.get("attempt", 1) for event in events(data, "leased")] == [1, 2, 3]
    assert [event["reason"] for event in events(data, "returned")] == ["lease timed out"] * 3


async def test_a_message_acknowledged_in_time_is_not_delivered_again(
    stocked: Relay, clock: ManualClock
) -> None:
    await stocked.ack("agent.a", ids(await stocked.lease("agent.a")))
    clock.advance_ms(60_000)
    assert await stocked.lease("agent.a") == []


async def test_a_second_lease_has_a_deadline_of_its_own(relay: Relay, clock: ManualClock) -> None:
    await send(relay)
    got = await relay.lease("agent.a")
    clock.advance_ms(20_000)
    await relay.nack("agent.a", ids(got))
    await relay.lease("agent.a")
    clock.advance_ms(29_999)  # the first deadline has long passed
    assert relay.metrics().by_status["leased"] == 1
    clock.advance_ms(1)
    assert relay.metrics().by_status["leased"] == 0
    clock.advance_ms(1_000)  # the second redelivery waits up to a second
    assert ids(await relay.lease("agent.a")) == ids(got)


async def test_leases_that_time_out_together_return_in_order(
    stocked: Relay, clock: ManualClock
) -> None:
    await stocked.lease("agent.a", limit=3)
    clock.advance_ms(30_000)
    assert payloads(await stocked.lease("agent.a")) == [0, 1, 2, 3, 4]


async def test_a_late_acknowledgement_of_a_returned_message_still_counts(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay)
    got = await relay.lease("agent.a")
    clock.advance_ms(30_000)
    assert await relay.ack("agent.a", ids(got)) == 1
    assert await relay.lease("agent.a") == []


async def test_large_messages_keep_their_queue_positions(relay: Relay) -> None:
    for size in (10, 3000, 20, 2000):
        await send(relay, "x" * size)
    small = await relay.lease("agent.a", max_size_bytes=1024)
    large = await relay.lease("agent.a")
    assert [len(one.payload) for one in small] == [10, 20]
    assert [len(one.payload) for one in large] == [3000, 2000]


async def test_the_size_that_counts_is_that_of_the_whole_envelope(relay: Relay) -> None:
    await send(relay, "x" * 50)
    size = relay.metrics().endpoints[0].bytes
    assert await relay.lease("agent.a", max_size_bytes=size - 1) == []
    assert len(await relay.lease("agent.a", max_size_bytes=size)) == 1


async def test_a_lease_can_wait_for_a_message(relay: Relay) -> None:
    waiting = await begun(relay, relay.lease("agent.a", wait=10))
    await send(relay, "at last")
    assert payloads(await waiting) == ["at last"]


async def test_a_lease_waits_no_longer_than_requested(relay: Relay, clock: ManualClock) -> None:
    waiting = await begun(relay, relay.lease("agent.a", wait=10))
    clock.advance_ms(9_999)
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.advance_ms(1)
    assert await waiting == []


async def test_a_waiting_lease_gets_a_returned_message(relay: Relay) -> None:
    await send(relay)
    got = await relay.lease("agent.a")
    waiting = await begun(relay, relay.lease("agent.a", wait=10))
    await relay.nack("agent.a", ids(got))
    assert ids(await waiting) == ids(got)


async def test_a_waiting_lease_sees_a_delayed_message_when_its_time_has_come(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay)
    got = await relay.lease("agent.a")
    await relay.nack("agent.a", ids(got), delay=5)
    waiting = await begun(relay, relay.lease("agent.a", wait=10))
    clock.advance_ms(5_000)
    assert ids(await waiting) == ids(got)


async def test_of_two_waiting_for_one_message_one_gets_it(relay: Relay, clock: ManualClock) -> None:
    both = [await begun(relay, relay.lease("agent.a", wait=10)) for _ in range(2)]
    await send(relay)
    await relay.idle()
    clock.advance_ms(10_000)
    assert sorted(len(got) for got in await asyncio.gather(*both)) == [0, 1]


async def test_a_cancelled_lease_takes_no_message(relay: Relay) -> None:
    waiting = await begun(relay, relay.lease("agent.a", wait=10))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await send(relay, "for the next one")
    assert payloads(await relay.lease("agent.a")) == ["for the next one"]


async def test_closing_ends_a_waiting_lease(relay: Relay) -> None:
    waiting = await begun(relay, relay.lease("agent.a", wait=600))
    await relay.close()
    assert await asyncio.wait_for(waiting, 60) == []


async def test_a_thousand_are_leased_at_once_and_no_more(start) -> None:
    relay = await start(rate_limit=UNLIMITED, storage="journal")
    relay.register_endpoint("agent.a")
    await relay.publish_many(drafts(1000))
    assert len(await relay.lease("agent.a", limit=1000)) == 1000


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_limit_out_of_bounds_is_rejected(relay: Relay, limit: int) -> None:
    with pytest.raises(InvalidInput, match="1 to 1,000"):
        await relay.lease("agent.a", limit=limit)


async def test_leasing_from_an_unregistered_endpoint_fails(relay: Relay) -> None:
    for call in (relay.lease("agent.x"), relay.ack("agent.x", "1"), relay.nack("agent.x", "1")):
        with pytest.raises(UnknownEndpoint, match=r"agent\.x"):
            await call


async def test_expired_messages_are_not_leased(relay: Relay, clock: ManualClock) -> None:
    await send(relay, "short", budget={"ttl": clock() // 1000 + 10})
    await send(relay, "long")
    clock.advance_ms(11)
    assert payloads(await relay.lease("agent.a")) == ["long"]


async def test_a_message_at_the_end_of_its_ttl_is_still_leased(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay, budget={"ttl": clock() // 1000 + 10})
    clock.advance_ms(10)
    assert len(await relay.lease("agent.a")) == 1


async def test_expired_messages_are_not_counted(relay: Relay, clock: ManualClock) -> None:
    await send(relay)
    clock.advance_ms(HOUR_MS)
    assert pending(relay) == 1
    clock.advance_ms(1)
    relay.sweep()
    assert pending(relay) == 0
    assert relay.metrics().events["expired"] == 1


async def test_an_expired_message_is_not_a_dead_letter_and_has_no_file(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay)
    clock.advance_ms(HOUR_MS + 1)
    relay.sweep()
    await relay.idle()
    endpoint = relay.get_endpoint("agent.a")
    assert endpoint is not None
    assert await relay.dead_letters() == []
    assert files(endpoint) == {"cur": [], "failed": [], "new": [], "tmp": []}


async def test_a_lease_that_outlives_its_message_ends_in_expiry(start, clock: ManualClock) -> None:
    relay = await start(lease_timeout_ms=30_000, default_ttl_ms=60_000)
    relay.register_endpoint("agent.a")
    await send(relay)
    clock.advance_ms(59_000)
    await relay.lease("agent.a")
    clock.advance_ms(30_000)
    assert await relay.lease("agent.a") == []
    assert relay.metrics().total_messages == 0


async def test_a_message_is_leased_only_once_it_is_durable(relay: Relay) -> None:
    publishing = asyncio.ensure_future(send(relay))
    await asyncio.sleep(0)
    assert await relay.lease("agent.a") == []
    await publishing
    assert len(await relay.lease("agent.a")) == 1
