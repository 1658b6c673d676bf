"""An experiment for each setting, with the expected outcome for two values.

An experiment gets an open relay that has the endpoints `agent.a` and `agent.b`.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.relay.experiments_with_consumers import (
    abandoned_after_a_second,
    leased_again_after_a_second,
)
from tests.relay.experiments_with_senders import (
    a_second_ahead_is_taken,
    accepted_of_a_network,
    senders_of_patterns,
    signal_max_bytes,
    signals_admitted,
    ten_characters_are_taken,
    workers_of_a_pool,
)
from tests.relay.observing import DAY_MS, UNLIMITED, pending, segments, send
from waypost import (
    BackpressureConfig,
    CircuitBreakerConfig,
    Envelope,
    HousekeepingConfig,
    QosConfig,
    RateLimitConfig,
    RedeliveryConfig,
    Relay,
    Settings,
    TierLimits,
)
from waypost.testing import ManualClock

WIDE = 1 << 40
FRAGILE = CircuitBreakerConfig(failure_threshold=1, cooldown_ms=1000)
OPEN_TO_ALL = QosConfig(
    enabled=True,
    tier1=TierLimits(100, WIDE),
    tier2=TierLimits(100, WIDE),
    tier3=TierLimits(100, WIDE),
)


class Bench(NamedTuple):
    """The fixtures of an experiment."""

    relay: Relay
    clock: ManualClock
    data: Path
    monkeypatch: pytest.MonkeyPatch


class Experiment(NamedTuple):
    """`outcomes` are values of the setting with the expected result; `given` are other settings."""

    run: Callable[[Bench], Awaitable[object]]
    outcomes: list[tuple[Any, object]]
    given: Settings = Settings()


def given(**fields: Any) -> Settings:
    return Settings(**{"rate_limit": UNLIMITED, **fields})


async def accepted_of(bench: Bench, count: int, payload: object = None) -> int:
    results = [await send(bench.relay, payload) for _ in range(count)]
    return sum(result.delivered_to for result in results)


async def accepted_of_five(bench: Bench) -> int:
    return await accepted_of(bench, 5)


async def accepted_of_five_of_the_relay(bench: Bench) -> int:
    await accepted_of(bench, 1)
    results = [await send(bench.relay, sender="_relay") for _ in range(5)]
    return sum(result.delivered_to for result in results)


async def accepted_after_an_answer(bench: Bench) -> int:
    await send(bench.relay, to="agent.b", sender="agent.a")
    return await accepted_of(bench, 5)


async def accepted_after_an_old_answer(bench: Bench) -> int:
    await send(bench.relay, to="agent.b", sender="agent.a")
    bench.clock.advance_ms(5_000)
    return await accepted_of(bench, 5)


async def has_files(bench: Bench) -> bool:
    return bench.relay.register_endpoint("agent.a").maildir_path is not None


async def syncs_of_a_publish(bench: Bench) -> int:
    await bench.relay.idle()
    calls: list[int] = []
    real = os.fdatasync
    bench.monkeypatch.setattr(os, "fdatasync", lambda fd: (calls.append(fd), real(fd)))
    await send(bench.relay)
    bench.monkeypatch.undo()
    return len(calls)


async def a_follow_up_is_taken(bench: Bench) -> bool:
    await send(bench.relay)
    (envelope,) = await bench.relay.lease("agent.a")
    return (await send(bench.relay, to="agent.b", parent=envelope)).delivered_to == 1


async def alive_after_a_second(bench: Bench) -> int:
    await send(bench.relay)
    bench.clock.advance_ms(1_000)
    return len(await bench.relay.lease("agent.a"))


async def accepted_a_second_later(bench: Bench) -> int:
    await accepted_of(bench, 1)
    bench.clock.advance_ms(1_000)
    return await accepted_of(bench, 1)


async def failing(bench: Bench, count: int) -> list[int]:
    """Return the deliveries of each publish to a handler that always raises."""

    def fail(envelope: Envelope) -> None:
        raise ValueError

    bench.relay.subscribe("agent.a", fail)
    delivered = []
    for _ in range(count):
        delivered.append((await send(bench.relay)).delivered_to)
        await bench.relay.idle()
    return delivered


async def failures_until_rejected(bench: Bench) -> int:
    return sum(await failing(bench, 5))


async def probed_after_a_second(bench: Bench) -> int:
    await failing(bench, 1)
    bench.clock.advance_ms(1_000)
    return (await send(bench.relay)).delivered_to


async def probes_at_once(bench: Bench) -> int:
    await failing(bench, 1)
    bench.clock.advance_ms(1_000)
    draft = {"subject": "agent.a", "payload": None, "sender": "agent.b"}
    return sum(one.delivered_to for one in await bench.relay.publish_many([draft] * 5))


async def state_after_a_good_probe(bench: Bench) -> str:
    broken = [True]

    def maybe(envelope: Envelope) -> None:
        if broken:
            raise ValueError

    bench.relay.subscribe("agent.a", maybe)
    await accepted_of(bench, 1)
    await bench.relay.idle()
    broken.clear()
    bench.clock.advance_ms(1_000)
    await accepted_of(bench, 1)
    await bench.relay.idle()
    breaker = bench.relay.metrics().breakers.get("agent.a")
    return breaker.state if breaker else "CLOSED"


async def warnings_of_five(bench: Bench) -> int:
    heard: list[object] = []
    bench.relay.on_signal("agent.b", lambda subject, signal: heard.append(signal))
    await accepted_of(bench, 5)
    return len(heard)


async def evicted_by_five(bench: Bench) -> int:
    await accepted_of(bench, 5, "x" * 1000)
    return len(await bench.relay.dead_letters())


async def still_counted_after_five_seconds(bench: Bench) -> int:
    await send(bench.relay, budget={"ttl": bench.clock() // 1000 + 10})
    bench.clock.advance_ms(5_000)
    return pending(bench.relay)


async def breakers_after_five_seconds(bench: Bench) -> int:
    await failing(bench, 1)
    bench.clock.advance_ms(5_000)
    bench.relay.sweep()
    return len(bench.relay.metrics().breakers)


async def deliveries_in_a_minute(bench: Bench) -> int:
    await send(bench.relay, message_id="m")
    deliveries = 0
    for _ in range(60):
        for envelope in await bench.relay.lease("agent.a"):
            deliveries += 1
            await bench.relay.nack("agent.a", envelope.id)
        bench.clock.advance_ms(1_000)
    return deliveries


async def dead_letters_after_five_seconds(bench: Bench) -> int:
    await send(bench.relay, budget={"call_budget_remaining": 0})
    bench.clock.advance_ms(5_000)
    bench.relay.sweep()
    return len(await bench.relay.dead_letters())


async def stored_twice_after_five_seconds(bench: Bench) -> int:
    stored = 0
    for _ in range(2):
        await send(bench.relay, message_id="order-1")
        stored += await bench.relay.ack("agent.a", "order-1")
        bench.clock.advance_ms(5_000)
    return stored


async def segments_after_five_seconds(bench: Bench) -> int:
    await bench.relay.seal_journal()
    await send(bench.relay, to="agent.nobody")  # the journal goes on in a new segment
    bench.clock.advance_ms(5_000)
    await bench.relay.rebuild_index()
    bench.relay.sweep()
    await bench.relay.idle()
    return len(segments(bench.data))


async def segments_of_many(bench: Bench) -> bool:
    await accepted_of(bench, 20, "x" * 1000)
    return len(segments(bench.data)) > 1


async def sealed_after_five_seconds(bench: Bench) -> int:
    await accepted_of(bench, 1)
    bench.clock.advance_ms(5_000)
    await bench.relay.idle()
    return len(segments(bench.data))


async def is_watching(bench: Bench) -> bool:
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return any(name.startswith("FileWatcher.") for name in names)


def qos(**fields: Any) -> Settings:
    return given(qos=msgspec.structs.replace(OPEN_TO_ALL, **fields))


def keeping(**fields: Any) -> Settings:
    return given(
        housekeeping=HousekeepingConfig(sweep_interval_ms=DAY_MS, **fields), circuit_breaker=FRAGILE
    )


SMALL_INBOX = qos(inbox_max_bytes=4200)
FIVE_OR_SO = BackpressureConfig(max_mailbox_size=5)


EXPERIMENTS: dict[str, Experiment] = {
    "signals.window_secs": Experiment(signals_admitted, [(1, 300), (10, 100)]),
    "signals.max_per_window": Experiment(signals_admitted, [(200, 100), (7, 7)]),
    "signals.max_per_pair": Experiment(signals_admitted, [(50, 100), (7, 14)]),
    "signals.max_bytes": Experiment(signal_max_bytes, [(4096, 4096), (7, 7)]),
    "storage": Experiment(has_files, [("maildir", True), ("journal", False)]),
    "durability": Experiment(syncs_of_a_publish, [("fsync", 1), ("async", 0)]),
    "max_hops": Experiment(a_follow_up_is_taken, [(1, False), (2, True)]),
    "default_ttl_ms": Experiment(alive_after_a_second, [(999, 0), (1000, 1)]),
    "default_call_budget": Experiment(a_follow_up_is_taken, [(1, False), (2, True)]),
    "max_payload_bytes": Experiment(ten_characters_are_taken, [(11, False), (12, True)]),
    "max_schedule_ahead_ms": Experiment(a_second_ahead_is_taken, [(999, False), (1000, True)]),
    "lease_timeout_ms": Experiment(leased_again_after_a_second, [(1000, 1), (1001, 0)]),
    "close_stuck_after_ms": Experiment(abandoned_after_a_second, [(1000, True), (1001, False)]),
    "pattern_senders": Experiment(
        senders_of_patterns, [("all", 2), ("authenticated", 1), ("none", 0)]
    ),
    "max_fanout": Experiment(senders_of_patterns, [(0, 2), (1, 0)]),
    "max_workers": Experiment(workers_of_a_pool, [(64, 3), (2, 2)]),
    "watch_files": Experiment(is_watching, [(True, True), (False, False)]),
    "rate_limit.enabled": Experiment(
        accepted_of_five,
        [(True, 2), (False, 5)],
        Settings(rate_limit=RateLimitConfig(max_per_window=2)),
    ),
    "rate_limit.window_secs": Experiment(
        accepted_a_second_later,
        [(1, 1), (2, 0)],
        Settings(rate_limit=RateLimitConfig(max_per_window=1)),
    ),
    "rate_limit.max_per_window": Experiment(accepted_of_five, [(2, 2), (3, 3)]),
    "rate_limit.anonymous_max_per_window": Experiment(accepted_of_a_network, [(2, 2), (3, 3)]),
    "rate_limit.per_sender_overrides": Experiment(
        accepted_of_five, [({"agent.b": 1, "agent": 2}, 1), ({"agent": 2}, 2), ({}, 5)]
    ),
    "circuit_breaker.enabled": Experiment(
        failures_until_rejected, [(True, 1), (False, 5)], given(circuit_breaker=FRAGILE)
    ),
    "circuit_breaker.failure_threshold": Experiment(
        failures_until_rejected, [(2, 2), (4, 4)], given(circuit_breaker=FRAGILE)
    ),
    "circuit_breaker.cooldown_ms": Experiment(
        probed_after_a_second, [(1000, 1), (1001, 0)], given(circuit_breaker=FRAGILE)
    ),
    "circuit_breaker.half_open_probe_count": Experiment(
        probes_at_once, [(1, 1), (3, 3)], given(circuit_breaker=FRAGILE)
    ),
    "circuit_breaker.success_to_close": Experiment(
        state_after_a_good_probe,
        [(1, "CLOSED"), (2, "HALF_OPEN")],
        given(circuit_breaker=FRAGILE),
    ),
    "backpressure.enabled": Experiment(
        accepted_of_five,
        [(True, 2), (False, 5)],
        given(backpressure=BackpressureConfig(max_mailbox_size=2)),
    ),
    "backpressure.max_mailbox_size": Experiment(accepted_of_five, [(2, 2), (4, 4)]),
    "backpressure.pressure_warning_at": Experiment(
        warnings_of_five, [(0.4, 3), (0.8, 1), (0.0, 5)], given(backpressure=FIVE_OR_SO)
    ),
    "relay_messages": Experiment(
        accepted_of_five_of_the_relay,
        [(TierLimits(3, WIDE), 3), (TierLimits(9, 1), 0), (None, 1)],
        given(backpressure=BackpressureConfig(max_mailbox_size=2)),
    ),
    "qos.enabled": Experiment(
        accepted_of_five, [(True, 0), (False, 5)], qos(tier1=TierLimits(0, 0))
    ),
    "qos.tier1.max_envelopes": Experiment(accepted_of_five, [(0, 0), (3, 3)], qos()),
    "qos.tier1.max_bytes": Experiment(accepted_of_five, [(1, 0), (WIDE, 5)], qos()),
    "qos.tier2.max_envelopes": Experiment(
        accepted_after_an_old_answer, [(0, 0), (3, 3)], qos(bidirectional_window_ms=1)
    ),
    "qos.tier2.max_bytes": Experiment(
        accepted_after_an_old_answer, [(1, 0), (WIDE, 5)], qos(bidirectional_window_ms=1)
    ),
    "qos.tier3.max_envelopes": Experiment(accepted_after_an_answer, [(0, 0), (3, 3)], qos()),
    "qos.tier3.max_bytes": Experiment(accepted_after_an_answer, [(1, 0), (WIDE, 5)], qos()),
    "qos.bidirectional_window_ms": Experiment(
        accepted_after_an_old_answer, [(4_999, 1), (5_000, 5)], qos(tier2=TierLimits(1, WIDE))
    ),
    "qos.inbox_max_bytes": Experiment(evicted_by_five, [(4200, 2), (WIDE, 0)], qos()),
    "qos.overflow": Experiment(
        evicted_by_five,
        [("evict_least_known", 2), ("reject", 0)],
        SMALL_INBOX,
    ),
    "qos.strangers": Experiment(
        accepted_of_five, [(TierLimits(2, WIDE), 2), (TierLimits(9, 1), 0), (None, 5)], qos()
    ),
    "redelivery.max_deliveries": Experiment(deliveries_in_a_minute, [(1, 1), (3, 3), (0, 7)]),
    "redelivery.first_delay_ms": Experiment(deliveries_in_a_minute, [(1, 5), (60_000, 3)]),
    "redelivery.max_delay_ms": Experiment(
        deliveries_in_a_minute,
        [(1, 60), (300_000, 7)],
        given(redelivery=RedeliveryConfig(max_deliveries=0)),
    ),
    "housekeeping.sweep_interval_ms": Experiment(
        still_counted_after_five_seconds, [(5_000, 0), (5_001, 1)], keeping()
    ),
    "housekeeping.breaker_idle_ms": Experiment(
        breakers_after_five_seconds, [(5_000, 0), (5_001, 1)], keeping()
    ),
    "housekeeping.dead_letter_retention_ms": Experiment(
        dead_letters_after_five_seconds, [(4_999, 0), (5_000, 1)], keeping()
    ),
    "housekeeping.duplicate_window_ms": Experiment(
        stored_twice_after_five_seconds, [(4_999, 2), (5_000, 1)], keeping()
    ),
    "housekeeping.journal_retention_ms": Experiment(
        segments_after_five_seconds, [(4_999, 0), (5_000, 1)], keeping()
    ),
    "housekeeping.segment_max_bytes": Experiment(
        segments_of_many, [(4096, True), (WIDE, False)], keeping()
    ),
    "housekeeping.segment_max_age_ms": Experiment(
        sealed_after_five_seconds,
        [(5_000, 1), (5_001, 0)],
        given(housekeeping=HousekeepingConfig(sweep_interval_ms=5_000)),
    ),
}
