"""Maintenance: expired data is removed, so that memory and disk use stay bounded."""

import asyncio
from pathlib import Path

import pytest

from tests.relay.observing import (
    HOUR_MS,
    UNLIMITED,
    drafts,
    events,
    payloads,
    pending,
    reasons,
    send,
)
from waypost import (
    BackpressureConfig,
    CircuitBreakerConfig,
    Envelope,
    HousekeepingConfig,
    QosConfig,
    RateLimitConfig,
    Reason,
    Relay,
    TierLimits,
)
from waypost.relay.state import payloads as bodies
from waypost.testing import ManualClock


async def test_a_sender_whose_window_is_empty_is_forgotten(
    relay: Relay, clock: ManualClock
) -> None:
    await send(relay)
    assert relay.metrics().senders_tracked == 1
    clock.advance_ms(59_999)
    relay.sweep()
    assert relay.metrics().senders_tracked == 1
    clock.advance_ms(1)
    relay.sweep()
    assert relay.metrics().senders_tracked == 0


async def test_idle_senders_are_forgotten(start, clock: ManualClock) -> None:
    relay = await start(storage="journal")
    most = 0
    for batch in range(20):
        await relay.publish_many(
            {"subject": "agent.nobody", "payload": None, "sender": f"crowd.{batch}.{number}"}
            for number in range(10_000)
        )
        clock.advance_ms(20_000)
        most = max(most, relay.metrics().senders_tracked)
    clock.advance_ms(60_000)
    assert most <= 40_000  # a window of 60 s holds three batches, and the one just sent
    assert relay.metrics().senders_tracked == 0


async def test_with_limits_off_the_window_of_a_busy_sender_stays_small(
    start, clock: ManualClock
) -> None:
    relay = await start(rate_limit=UNLIMITED, storage="journal")
    for _ in range(10):
        await relay.publish_many(drafts(1000, to="agent.nobody"))
        clock.advance_ms(60_000)
    await relay.publish_many(drafts(1000, to="agent.nobody"))
    relay.sweep()
    windows = relay._runtime.ledger.state.windows.snapshot(clock() // 1000, HOUR_MS)
    assert len(windows["agent.b"]) <= 2000


async def test_an_idle_breaker_is_forgotten(start, clock: ManualClock, data: Path) -> None:
    relay = await start(circuit_breaker=CircuitBreakerConfig(failure_threshold=1))
    relay.register_endpoint("agent.a")

    def fail(envelope: Envelope) -> None:
        raise ValueError

    relay.subscribe("agent.a", fail)
    await send(relay)
    await relay.idle()
    clock.advance_ms(HOUR_MS - 1)
    assert "agent.a" in relay.metrics().breakers
    clock.advance_ms(5_001)
    assert relay.metrics().breakers == {}
    await relay.idle()
    assert [event["after"] for event in events(data, "breaker")] == ["OPEN", "CLOSED"]


async def test_a_flood_of_rejected_publishes_stays_small_on_disk(
    start, clock: ManualClock, data: Path
) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    await send(relay)
    for _ in range(5):
        await relay.publish_many(drafts(10_000))
    clock.advance_ms(60_000)
    await relay.idle()
    rejected = events(data, "rejected")
    assert len(rejected) == 1_001
    assert sum(event.get("count", 1) for event in rejected) == 50_000
    assert sum(path.stat().st_size for path in (data / "journal").glob("*.open")) < 1_000_000


async def test_the_counts_of_a_flood_are_journaled_when_the_relay_closes(start, data: Path) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    await relay.publish_many(drafts(2_001))
    await relay.close()
    assert sum(event.get("count", 1) for event in events(data, "rejected")) == 2_000


async def test_a_flood_that_goes_on_is_counted_minute_by_minute(
    start, clock: ManualClock, data: Path
) -> None:
    rarely = HousekeepingConfig(sweep_interval_ms=24 * HOUR_MS)
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1), housekeeping=rarely)
    for _ in range(3):
        await relay.publish_many(drafts(1_501))
        clock.advance_ms(60_000)
    await relay.close()
    counts = [event.get("count", 1) for event in events(data, "rejected")]
    assert [count for count in counts if count > 1] == [500, 500, 500]
    assert sum(counts) == 4_500


async def test_messages_outside_the_cache_are_read_from_the_journal(
    start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "payloads_in_memory_max_bytes", 8_000)
    relay = await start(rate_limit=UNLIMITED)
    relay.register_endpoint("agent.a")
    sent = []
    for number in range(40):
        sent.append([number, "x" * (100 if number % 2 else 5_000)])
        await send(relay, sent[-1])
        await relay.seal_journal()
    assert payloads(await relay.lease("agent.a")) == sent


async def test_the_flood_of_one_sender_hides_no_rejection_of_another(start, data: Path) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    await relay.publish_many(drafts(2_000))
    await relay.publish_many(drafts(2, sender="agent.c"))
    await relay.idle()
    assert len([one for one in events(data, "rejected") if one["sender"] == "agent.c"]) == 1


async def test_publishes_rejected_after_the_rate_limit_count_however_many_they_are(start) -> None:
    relay = await start(
        rate_limit=RateLimitConfig(max_per_window=1_500),
        backpressure=BackpressureConfig(max_mailbox_size=1),
    )
    relay.register_endpoint("agent.a")
    results = await relay.publish_many(drafts(1_600))
    found = [reasons(result) for result in results]
    assert found.count([]) == 1
    assert found.count([Reason.BACKPRESSURE]) == 1_499
    assert found.count([Reason.RATE_LIMITED]) == 100


async def test_a_flood_does_not_make_a_later_success_be_forgotten(
    start, clock: ManualClock
) -> None:
    relay = await start(rate_limit=UNLIMITED, backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    first = await send(relay)
    await relay.publish_many(drafts(1_000))
    assert reasons(await send(relay, message_id="order-1")) == [Reason.BACKPRESSURE]
    await relay.ack("agent.a", first.message_id)
    await send(relay, message_id="order-1")
    await relay.ack("agent.a", "order-1")
    clock.advance_ms(60_000)
    await send(relay, message_id="order-1")
    assert await relay.lease("agent.a") == []


async def test_a_rejected_flood_does_not_block_other_tasks(start) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    turns = 0

    async def flood() -> None:
        for _ in range(100):
            await send(relay)

    async def other() -> None:
        nonlocal turns
        while not flooding.done():
            turns += 1
            await asyncio.sleep(0)

    flooding = asyncio.ensure_future(flood())
    await other()
    assert turns >= 50


async def test_an_unread_mailbox_does_not_grow_with_expired_messages(
    start, clock: ManualClock
) -> None:
    relay = await start(rate_limit=UNLIMITED, default_ttl_ms=1_000)
    relay.register_endpoint("agent.a")
    for _ in range(20):
        await relay.publish_many(drafts(100))
        clock.advance_ms(5_000)
    assert pending(relay) == 0
    assert len(relay._runtime.ledger.state.mailboxes["agent.a"].queue) < 500


async def test_an_unread_mailbox_does_not_grow_with_evicted_messages(start) -> None:
    relay = await start(
        rate_limit=UNLIMITED,
        backpressure=BackpressureConfig(enabled=False),
        qos=QosConfig(enabled=True, tier1=TierLimits(10_000, 1 << 40), inbox_max_bytes=5_000),
    )
    relay.register_endpoint("agent.a")
    await relay.publish_many(drafts(1_000))
    assert pending(relay) < 30
    assert len(relay._runtime.ledger.state.mailboxes["agent.a"].queue) < 200


async def test_order_is_kept_when_messages_leave_from_the_middle(start) -> None:
    relay = await start(rate_limit=UNLIMITED)
    relay.register_endpoint("agent.a")
    results = [await send(relay, number) for number in range(300)]
    kept = await relay.lease("agent.a", limit=3)
    await relay.ack("agent.a", [one.message_id for one in results[5:]])
    await relay.nack("agent.a", [kept[1].id, kept[0].id])
    await send(relay, "last")
    assert payloads(await relay.lease("agent.a")) == [0, 1, 3, 4, "last"]


async def test_maintenance_repeats_at_its_interval(relay: Relay, clock: ManualClock) -> None:
    await send(relay, budget={"ttl": clock() // 1000 + 1})
    clock.advance_ms(4_999)
    assert pending(relay) == 1
    clock.advance_ms(1)
    assert pending(relay) == 0


async def test_expiry_is_logged_with_a_count_for_each_recipient(
    relay: Relay, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    relay.register_endpoint("agent.c")
    await relay.publish_many([*drafts(3), *drafts(1, to="agent.c")])
    with caplog.at_level("INFO", "waypost.relay"):
        clock.advance_ms(HOUR_MS + 5_000)
    assert "expired 3 messages for agent.a" in caplog.text
    assert "expired 1 messages for agent.c" in caplog.text


RARE_SWEEPS = HousekeepingConfig(sweep_interval_ms=24 * HOUR_MS)


@pytest.mark.parametrize("found_by", ["a publish", "a lease", "a consumer"])
async def test_expired_messages_that_others_find_are_counted_in_the_log(
    start, data: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture, found_by: str
) -> None:
    caplog.set_level("INFO", "waypost.relay")
    relay = await start(housekeeping=RARE_SWEEPS)
    relay.register_endpoint("agent.a")
    await relay.publish_many(drafts(3))
    clock.advance_ms(2 * HOUR_MS)
    if found_by == "a publish":
        await send(relay)
    elif found_by == "a lease":
        assert await relay.lease("agent.a") == []
    else:
        relay.attach("agent.a", lambda: None).pending()
    await relay.sync()
    assert len(events(data, "expired")) == 3
    relay.sweep()
    assert "expired 3 messages for agent.a" in caplog.text
    caplog.clear()
    relay.sweep()
    assert "expired" not in caplog.text


async def test_expired_messages_are_counted_in_the_log_at_the_latest_when_the_relay_closes(
    start, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "waypost.relay")
    relay = await start(housekeeping=RARE_SWEEPS)
    relay.register_endpoint("agent.a")
    await send(relay)
    clock.advance_ms(2 * HOUR_MS)
    await relay.lease("agent.a")
    await relay.close()
    assert "expired 1 messages for agent.a" in caplog.text


async def test_many_recipients_of_expired_messages_share_lines_of_the_log(
    start, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "waypost.relay")
    relay = await start(storage="journal", rate_limit=UNLIMITED, housekeeping=RARE_SWEEPS)
    for number in range(1500):
        relay.register_endpoint(f"agent.a{number}")
    for _ in range(2):
        await relay.publish_many(
            [one for number in range(1500) for one in drafts(1, to=f"agent.a{number}")]
        )
        clock.advance_ms(2 * HOUR_MS)
        caplog.clear()
        relay.sweep()
        lines = [line for line in caplog.messages if line.startswith("expired")]
        assert len(lines) == 1001
        assert lines[-1] == "expired 500 messages for 500 more recipients"
    await relay.publish_many(drafts(2, to="agent.a1"))
    await relay.publish("agent.a2", 1, sender="agent.b", budget={"ttl": clock() // 1000})
    clock.advance_ms(1)
    caplog.clear()
    relay.sweep()
    assert caplog.messages == ["expired 1 messages for 1 more recipients"]
