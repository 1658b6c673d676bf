"""Scheduled messages: kept until they are due, then last in the queue; cancellable until then."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import UNLIMITED, events, files, payloads, reasons, send
from waypost import (
    BackpressureConfig,
    CircuitBreakerConfig,
    Envelope,
    InvalidMessage,
    QosConfig,
    Reason,
    Relay,
    Settings,
    TierLimits,
)
from waypost.testing import ManualClock

HOUR_S = 3600
WIDE = 1 << 40


def at(clock: ManualClock, seconds: float) -> datetime:
    return datetime.fromtimestamp(clock.now_us / 1e6, UTC) + timedelta(seconds=seconds)


def advance(clock: ManualClock, seconds: float) -> None:
    clock.advance_ms(int(seconds * 1000))


def scheduled(relay: Relay, sender: str | None = None) -> list[str]:
    return [one.id for one in relay.inspect().scheduled(sender)]


async def received(relay: Relay, subject: str = "agent.a") -> list[object]:
    await relay.idle()
    return payloads(await relay.lease(subject))


async def test_a_message_with_a_delay_is_delivered_after_it_and_not_before(
    relay: Relay, clock: ManualClock
) -> None:
    result = await send(relay, "later", delay=10)
    assert result.delivered_to == 1
    advance(clock, 9.999)
    assert await received(relay) == []
    assert await relay.peek("agent.a") == []
    advance(clock, 0.001)
    assert await received(relay) == ["later"]


async def test_a_message_with_an_instant_is_delivered_then(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay, "at noon", deliver_at=at(clock, HOUR_S))
    advance(clock, HOUR_S - 1)
    assert await received(relay) == []
    advance(clock, 1)
    assert await received(relay) == ["at noon"]


async def test_an_instant_that_has_passed_and_no_delay_are_now(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay, "past", deliver_at=at(clock, -5))
    await send(relay, "now", delay=0)
    assert await received(relay) == ["past", "now"]


async def test_its_queue_position_is_that_of_its_delivery(
    relay: Relay, clock: ManualClock, start: Start
) -> None:
    await send(relay, "second", delay=20)
    await send(relay, "first", delay=timedelta(seconds=10))
    await send(relay, "also second", delay=20)
    advance(clock, 15)
    await send(relay, "between")
    advance(clock, 15)
    await send(relay, "last")
    relay = await start()  # the order is that of the journal
    assert await received(relay) == ["first", "between", "second", "also second", "last"]


@pytest.mark.parametrize("storage", ["maildir", "journal"])
@pytest.mark.parametrize("index", ["kept", "lost"])
async def test_scheduled_messages_survive_a_restart_and_come_once_in_order(
    start: Start, clock: ManualClock, data: Path, storage: str, index: str
) -> None:
    relay = await start(storage=storage)
    relay.register_endpoint("agent.a")
    for number in (30, 10, 20):
        await send(relay, number, delay=number)
    advance(clock, 10)
    await relay.idle()
    await relay.close()
    if index == "lost":
        (data / "index.db").unlink()
    relay = await start(storage=storage)
    assert len(scheduled(relay)) == 2
    assert await received(relay) == [10]
    advance(clock, 5)
    await relay.close()
    advance(clock, HOUR_S - 60)  # both become due while the relay is closed
    relay = await start(storage=storage)
    advance(clock, 0)
    assert await received(relay) == [10, 20, 30]
    assert scheduled(relay) == []


async def test_a_waiting_lease_gets_it_when_it_is_due(relay: Relay, clock: ManualClock) -> None:
    got: list[object] = []
    relay.subscribe("agent.a", lambda envelope: got.append(envelope.payload))
    await send(relay, "later", delay=5)
    await relay.idle()
    assert got == []
    advance(clock, 5)
    await relay.idle()
    assert got == ["later"]


async def test_its_time_to_live_begins_when_it_is_due(start: Start, clock: ManualClock) -> None:
    relay = await start(default_ttl_ms=60_000)
    relay.register_endpoint("agent.a")
    await send(relay, "long", delay=HOUR_S)
    await send(relay, "short", delay=HOUR_S)
    advance(clock, HOUR_S + 60)
    await relay.idle()
    first = await relay.lease("agent.a", 1)
    assert payloads(first) == ["long"]
    assert first[0].budget.ttl == clock.now_us // 1000
    advance(clock, 0.001)
    assert await received(relay) == []


async def test_a_message_that_expires_before_it_is_due_is_rejected_at_once(
    relay: Relay, clock: ManualClock
) -> None:
    ttl = clock.now_us // 1000 + 5000
    late = await send(relay, delay=5.001, budget={"ttl": ttl})
    assert reasons(late) == [Reason.BUDGET_EXCEEDED]
    assert (await send(relay, delay=5, budget={"ttl": ttl})).delivered_to == 1


async def test_a_follow_up_cannot_outlive_its_conversation(
    start: Start, clock: ManualClock
) -> None:
    relay = await start(default_ttl_ms=60_000)
    relay.register_endpoint("agent.a")
    relay.register_endpoint("agent.b")
    await send(relay, "question")
    (question,) = await relay.lease("agent.a")
    late = await send(relay, to="agent.b", sender="agent.a", parent=question, delay=61)
    assert reasons(late) == [Reason.BUDGET_EXCEEDED]
    kept = await send(relay, to="agent.b", sender="agent.a", parent=question, delay=59)
    assert kept.delivered_to == 1


async def test_a_scheduled_message_counts_in_mailbox_and_quota(
    start: Start, clock: ManualClock
) -> None:
    quotas = QosConfig(enabled=True, tier1=TierLimits(2, WIDE))
    relay = await start(qos=quotas, backpressure=BackpressureConfig(max_mailbox_size=3))
    relay.register_endpoint("agent.a")
    await send(relay, delay=10)
    await send(relay, delay=10)
    assert reasons(await send(relay)) == [Reason.QUOTA_EXCEEDED]
    assert (await send(relay, sender="agent.c")).delivered_to == 1
    assert reasons(await send(relay, sender="agent.d")) == [Reason.BACKPRESSURE]
    counts = relay.metrics().endpoints[0]
    assert (counts.pending, counts.scheduled, counts.leased) == (1, 2, 0)
    assert relay.metrics().by_status["scheduled"] == 2


async def test_eviction_treats_it_like_a_pending_message(start: Start, clock: ManualClock) -> None:
    limits = TierLimits(100, WIDE)
    qos = QosConfig(
        enabled=True,
        tier1=limits,
        tier2=limits,
        tier3=limits,
        inbox_max_bytes=2000,
        overflow="evict_heaviest",
    )
    relay = await start(qos=qos, rate_limit=UNLIMITED)
    relay.register_endpoint("agent.a")
    first = await send(relay, "x" * 600, delay=HOUR_S)
    second = await send(relay, "y" * 600)
    await send(relay, "z" * 600, sender="agent.c")
    dead = await relay.dead_letters()
    assert [one.envelope.id for one in dead] == [second.message_id]  # those due later go last
    assert scheduled(relay) == [first.message_id]
    await send(relay, "w" * 600, sender="agent.d")
    assert scheduled(relay) == []
    assert await relay.redrive([first.message_id]) == 1
    assert scheduled(relay) == [first.message_id]  # a redriven one is still not due
    advance(clock, HOUR_S)
    assert "x" * 600 in await received(relay)


async def test_its_sender_lists_and_cancels_it_and_others_cannot(
    relay: Relay, clock: ManualClock, data: Path
) -> None:
    one = await send(relay, 1, delay=20)
    two = await send(relay, 2, delay=10)
    other = await send(relay, 3, delay=10, sender="agent.c")
    assert scheduled(relay, "agent.b") == [two.message_id, one.message_id]
    assert await relay.cancel(one.message_id, "agent.c") == []
    assert await relay.cancel([one.message_id, "unknown"], "agent.b") == [one.message_id]
    assert await relay.cancel(other.message_id) == [other.message_id]  # the operator
    assert [event["id"] for event in events(data, "cancelled")] == [
        one.message_id,
        other.message_id,
    ]
    assert [event.get("via", "sender") for event in events(data, "cancelled")] == [
        "sender",
        "operator",
    ]
    advance(clock, 30)
    assert await received(relay) == [2]
    assert await relay.cancel(two.message_id, "agent.b") == []


async def test_cancelling_frees_the_quota_and_stays_so_after_a_restart(
    start: Start, clock: ManualClock
) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    sent = await send(relay, "never", delay=10)
    assert reasons(await send(relay)) == [Reason.BACKPRESSURE]
    await relay.cancel(sent.message_id, "agent.b")
    assert (await send(relay, "now")).delivered_to == 1
    relay = await start()
    advance(clock, 20)
    assert await received(relay) == ["now"]


async def test_a_fan_out_is_cancelled_at_every_endpoint(relay: Relay, clock: ManualClock) -> None:
    relay.register_endpoint("agent.c")
    sent = await send(relay, to="agent.*", delay=10)
    assert sent.delivered_to == 2
    assert len(relay.inspect().scheduled()) == 2
    assert await relay.cancel(sent.message_id, "agent.b") == [sent.message_id]
    advance(clock, 10)
    assert await received(relay) == []
    assert await received(relay, "agent.c") == []


async def test_the_same_id_again_returns_the_first_result(relay: Relay, clock: ManualClock) -> None:
    first = await send(relay, 1, delay=10, message_id="mine")
    again = await send(relay, 2, message_id="mine")
    assert (again.message_id, again.delivered_to) == (first.message_id, first.delivered_to)
    advance(clock, 10)
    assert await received(relay) == [1]


async def test_its_recipient_cannot_acknowledge_it_before_it_is_due(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay, "later", delay=10, message_id="mine")
    assert await relay.ack("agent.a", "mine") == 0
    advance(clock, 10)
    assert await received(relay) == ["later"]


async def test_it_has_a_file_only_from_when_it_is_due(relay: Relay, clock: ManualClock) -> None:
    endpoint = relay.register_endpoint("agent.a")
    sent = await send(relay, "later", delay=10)
    await relay.idle()
    assert files(endpoint)["new"] == []
    advance(clock, 10)
    await relay.idle()
    assert files(endpoint)["new"] == [sent.message_id]


async def test_publish_many_schedules_and_rejects_an_invalid_time_before_any_decision(
    relay: Relay, clock: ManualClock
) -> None:
    good = {"subject": "agent.a", "payload": 1, "sender": "agent.b", "delay": 10}
    with pytest.raises(InvalidMessage):
        await relay.publish_many([good, {**good, "delay": -1}])
    assert scheduled(relay) == []
    results = await relay.publish_many([good, {**good, "payload": 2, "delay": 5}])
    assert [one.delivered_to for one in results] == [1, 1]
    advance(clock, 10)
    assert await received(relay) == [2, 1]


@pytest.mark.parametrize(
    "when",
    [
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"delay": "5m"},
        {"delay": True},
        {"delay": timedelta(days=-1)},
        {"delay": 7 * 24 * HOUR_S + 1},
        {"deliver_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - without a time zone
        {"deliver_at": datetime(9999, 12, 31, tzinfo=UTC)},
        {"deliver_at": "tomorrow"},
        {"delay": 1, "deliver_at": datetime(2026, 1, 1, tzinfo=UTC)},
    ],
)
async def test_a_time_that_cannot_be_is_invalid(relay: Relay, when: dict[str, object]) -> None:
    with pytest.raises(InvalidMessage):
        await send(relay, **when)
    assert relay.metrics().total_messages == 0


async def test_the_history_tells_when_it_is_due_and_when_it_was(
    relay: Relay, clock: ManualClock
) -> None:
    sent = await send(relay, "later", delay=10)
    cancelled = await send(relay, "never", delay=10)
    await relay.cancel(cancelled.message_id, "agent.b")
    advance(clock, 10)
    await received(relay)
    history = (await relay.explain(sent.message_id)).steps
    stored = next(step for step in history if step.kind == "accepted")
    assert "due at 2023-11-14 22:13:30 UTC" in stored.text
    assert [step.kind for step in history if step.kind != "check"] == [
        "accepted",
        "queued",
        "leased",
    ]
    ends = (await relay.explain(cancelled.message_id)).steps[-1]
    assert (ends.kind, ends.text) == ("cancelled", "cancelled by the sender before it was due")


async def test_a_scheduled_message_is_no_probe_of_a_breaker(
    start: Start, clock: ManualClock
) -> None:
    fragile = CircuitBreakerConfig(failure_threshold=1, cooldown_ms=1000, success_to_close=1)
    relay = await start(circuit_breaker=fragile)
    relay.register_endpoint("agent.a")

    def fail(envelope: Envelope) -> None:
        raise RuntimeError("broken")

    stop = relay.subscribe("agent.a", fail)
    await send(relay)
    await relay.idle()
    assert reasons(await send(relay, delay=10)) == [Reason.CIRCUIT_OPEN]
    advance(clock, 1)
    assert (await send(relay, delay=10)).delivered_to == 1
    breaker = relay.metrics().breakers["agent.a"]
    assert (breaker.state, breaker.probes_in_flight) == ("HALF_OPEN", 0)
    stop()


async def test_waiting_times_are_counted_from_when_it_was_due(
    relay: Relay, clock: ManualClock
) -> None:
    sent = await send(relay, delay=HOUR_S)
    advance(clock, HOUR_S + 2)
    await received(relay)
    await relay.ack("agent.a", sent.message_id)
    assert relay.inspect().take_wait_times_us() == [2_000_000]


async def test_the_longest_delay_is_a_setting(start: Start, clock: ManualClock) -> None:
    relay = await start(max_schedule_ahead_ms=5000)
    relay.register_endpoint("agent.a")
    assert (await send(relay, delay=5)).delivered_to == 1
    with pytest.raises(InvalidMessage, match=r"at most 5 seconds ahead \(maxScheduleAheadMs\)"):
        await send(relay, delay=5.001)
    assert Settings().max_schedule_ahead_ms == 7 * 24 * 3_600_000


async def test_after_the_clock_was_set_the_next_sweep_queues_what_is_due(data: Path) -> None:
    now = [1_700_000_000_000_000]
    settings = Settings(watch_files=False, durability="async")
    async with Relay(data, settings=settings, clock=lambda: now[0]) as relay:
        relay.register_endpoint("agent.a")
        await send(relay, "later", delay=HOUR_S)
        now[0] += HOUR_S * 1_000_000
        assert await received(relay) == []  # its timer waits for an hour of the machine's time
        relay.sweep()
        assert await received(relay) == ["later"]


async def test_of_one_id_of_two_senders_each_cancels_its_own(
    relay: Relay, clock: ManualClock
) -> None:
    relay.register_endpoint("agent.c")
    await send(relay, 1, delay=10, message_id="same")
    await send(relay, 2, delay=10, message_id="same", to="agent.c", sender="agent.d")
    assert await relay.cancel("same", "agent.b") == ["same"]
    assert [one.sender for one in relay.inspect().scheduled()] == ["agent.d"]
    assert await relay.cancel(["same", "same"]) == ["same"]
