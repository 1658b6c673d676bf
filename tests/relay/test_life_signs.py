"""Attached consumers that show no sign of life: their messages return, and they get no more."""

import json
from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import events, payloads, send
from tests.relay.test_consumers import ids, numbers, stay
from waypost import RedeliveryConfig, Relay
from waypost.relay.delivery.consumer import Consumer
from waypost.testing import ManualClock

TIMEOUT_MS = 30_000
CLOSING_MS = 300_000


@pytest.fixture
async def stocked(relay: Relay) -> Relay:
    """A relay with five pending messages, 0 to 4, for `agent.a`."""
    for number in range(5):
        await send(relay, number)
    return relay


async def test_a_consumer_that_acks_nothing_is_stuck_after_the_lease_timeout(
    stocked: Relay, clock: ManualClock
) -> None:
    consumer = stay(stocked)
    consumer.take(3)
    clock.advance_ms(TIMEOUT_MS - 1)
    assert not consumer.stuck_since_us
    clock.advance_ms(1)
    assert consumer.stuck_since_us == clock()
    assert (consumer.in_flight, consumer.bytes_in_flight) == ({}, 0)
    assert payloads(await stocked.lease("agent.a")) == [0, 1, 2, 3, 4]


async def test_it_gets_no_messages_while_it_is_stuck(stocked: Relay, clock: ManualClock) -> None:
    consumer = stay(stocked)
    consumer.take(3)
    clock.advance_ms(TIMEOUT_MS)
    assert consumer.take(5) == []
    assert consumer.is_paused()


async def test_only_the_delivery_of_its_oldest_message_has_failed(
    start: Start, clock: ManualClock, data: Path
) -> None:
    relay = await start(redelivery=RedeliveryConfig(max_deliveries=1))
    relay.register_endpoint("agent.a")
    for number in range(3):
        await send(relay, number)
    stay(relay).take(3)
    clock.advance_ms(TIMEOUT_MS)
    await relay.idle()
    (dead,) = await relay.dead_letters()
    assert (dead.envelope.payload, dead.reason) == (
        0,
        "max deliveries exceeded (1/1): lease timed out: no sign of life for 30.0 s",
    )
    assert [one["uncounted"] for one in events(data, "returned")] == [True, True]
    assert payloads(await relay.lease("agent.a")) == [1, 2]


async def test_a_message_fetched_ahead_does_not_run_out_behind_others(
    stocked: Relay, clock: ManualClock
) -> None:
    consumer = stay(stocked)
    for message_id in ids(consumer.take(5)):
        clock.advance_ms(TIMEOUT_MS - 1)
        assert len(consumer.ack([message_id])) == 1
    assert not consumer.stuck_since_us


async def test_arrivals_do_not_count_as_signs_of_life(relay: Relay, clock: ManualClock) -> None:
    consumer = stay(relay)
    for number in range(10):
        await send(relay, number)
        consumer.take(1)
        clock.advance_ms(TIMEOUT_MS // 5)
    assert consumer.stuck_since_us


@pytest.mark.parametrize("sign", ["ack", "nack", "release", "extend"])
async def test_every_operation_on_a_message_in_flight_is_a_sign_of_life(
    stocked: Relay, clock: ManualClock, sign: str
) -> None:
    consumer = stay(stocked)
    _, last = ids(consumer.take(2))
    clock.advance_ms(TIMEOUT_MS - 1)
    show(consumer, sign, last)
    clock.advance_ms(TIMEOUT_MS - 1)
    assert not consumer.stuck_since_us
    clock.advance_ms(1)
    assert consumer.stuck_since_us


def show(consumer: Consumer, sign: str, message_id: str) -> None:
    match sign:
        case "ack":
            consumer.ack([message_id])
        case "nack":
            consumer.nack([message_id], 0.0)
        case "release":
            consumer.release([message_id], 0.0)
        case "extend":
            consumer.extend([message_id], 1.0)


async def test_operations_on_other_messages_are_no_signs_of_life(
    stocked: Relay, clock: ManualClock
) -> None:
    consumer = stay(stocked)
    consumer.take(1)
    clock.advance_ms(TIMEOUT_MS - 1)
    for sign in ("ack", "nack", "release", "extend"):
        show(consumer, sign, "never-was")
    clock.advance_ms(1)
    assert consumer.stuck_since_us


async def test_an_extension_covers_everything_in_flight(
    stocked: Relay, clock: ManualClock, data: Path
) -> None:
    consumer = stay(stocked)
    first, second = ids(consumer.take(2))
    consumer.extend([first], 600.0)
    clock.advance_ms(599_000)
    assert list(consumer.in_flight) == [first, second]
    clock.advance_ms(1_000)
    assert consumer.stuck_since_us
    await stocked.idle()
    (extended,) = [one for one in events(data, "leased") if one.get("extended")]
    assert (extended["id"], extended["via"]) == (first, "connection")


async def test_an_extension_ends_with_its_message(stocked: Relay, clock: ManualClock) -> None:
    consumer = stay(stocked)
    first, _ = ids(consumer.take(2))
    consumer.extend([first], 600.0)
    consumer.ack([first])
    clock.advance_ms(TIMEOUT_MS)
    assert consumer.stuck_since_us


async def test_acks_over_http_are_signs_of_life_too(stocked: Relay, clock: ManualClock) -> None:
    consumer = stay(stocked)
    for message_id in ids(consumer.take(5)):
        clock.advance_ms(TIMEOUT_MS - 1)
        await stocked.ack("agent.a", message_id)
    clock.advance_ms(1)
    assert not consumer.stuck_since_us


async def test_a_late_ack_counts_and_ends_the_wait(stocked: Relay, clock: ManualClock) -> None:
    arrivals: list[None] = []
    consumer = stay(stocked, arrivals)
    late = ids(consumer.take(1))
    clock.advance_ms(TIMEOUT_MS)
    await stocked.idle()
    arrivals.clear()
    assert len(consumer.ack(late)) == 1
    assert not consumer.stuck_since_us
    await stocked.idle()
    assert arrivals
    assert numbers(consumer.take(5)) == [1, 2, 3, 4]


async def test_a_consumer_can_be_stuck_again(stocked: Relay, clock: ManualClock) -> None:
    consumer = stay(stocked)
    for _ in range(3):
        late = ids(consumer.take(1))
        assert late
        clock.advance_ms(TIMEOUT_MS)
        assert consumer.stuck_since_us
        consumer.ack(late)
    assert numbers(consumer.take(5)) == [3, 4]


async def test_a_consumer_that_stays_stuck_is_abandoned(stocked: Relay, clock: ManualClock) -> None:
    consumer, calls = stay(stocked), list[str]()
    consumer.on_stuck = lambda: calls.append("stuck")
    consumer.on_abandoned = lambda: calls.append("abandoned")
    consumer.take(1)
    clock.advance_ms(TIMEOUT_MS + CLOSING_MS - 1)
    assert calls == ["stuck"]
    clock.advance_ms(1)
    assert calls == ["stuck", "abandoned"]


async def test_it_may_be_left_connected(start: Start, clock: ManualClock) -> None:
    relay = await start(close_stuck_after_ms=0)
    relay.register_endpoint("agent.a")
    await send(relay)
    consumer, calls = stay(relay), list[str]()
    consumer.on_abandoned = lambda: calls.append("abandoned")
    consumer.take(1)
    clock.advance_ms(10 * CLOSING_MS)
    assert (bool(consumer.stuck_since_us), calls) == (True, [])


async def test_a_sign_of_life_in_time_prevents_that(stocked: Relay, clock: ManualClock) -> None:
    consumer, calls = stay(stocked), list[str]()
    consumer.on_abandoned = lambda: calls.append("abandoned")
    late = ids(consumer.take(1))
    clock.advance_ms(TIMEOUT_MS + CLOSING_MS - 1)
    consumer.ack(late)
    clock.advance_ms(CLOSING_MS)
    assert calls == []


async def test_new_settings_hold_for_messages_in_flight(
    start: Start, clock: ManualClock, data: Path
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay)
    consumer = stay(relay)
    consumer.take(1)
    clock.advance_ms(10_000)
    relay.settings_file.replace(json.dumps({"leaseTimeoutMs": 5_000}).encode())
    assert consumer.stuck_since_us == clock()


async def test_a_detached_consumer_is_not_watched(stocked: Relay, clock: ManualClock) -> None:
    consumer = stay(stocked)
    consumer.take(1)
    consumer.detach()
    clock.advance_ms(TIMEOUT_MS)
    assert not consumer.stuck_since_us


async def test_the_operator_releases_all_leases(stocked: Relay, data: Path) -> None:
    consumer = stay(stocked)
    consumer.take(2)
    await stocked.lease("agent.a", limit=1)
    assert await stocked.release_leases("agent.a") == 3
    assert consumer.take(5) == []
    returned = events(data, "returned")
    assert {one["reason"] for one in returned} == {"released by the operator"}
    assert all(one["uncounted"] for one in returned)
    assert payloads(await stocked.lease("agent.a")) == [0, 1, 2, 3, 4]


async def test_a_consumer_without_messages_in_flight_is_not_affected(stocked: Relay) -> None:
    consumer = stay(stocked)
    assert await stocked.release_leases("agent.a") == 0
    assert numbers(consumer.take(5)) == [0, 1, 2, 3, 4]
