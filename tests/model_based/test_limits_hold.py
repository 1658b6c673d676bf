"""No sequence of publishes puts a mailbox, a window or a quota above its limit.

`test_long_life` recounts the relay's counters; here callers try to exceed the limits, and only the
content of the mailboxes is checked.
"""

from pathlib import Path

import msgspec
import pytest

from tests.faults import plain_journal
from tests.faults.seeds import seeded
from waypost import (
    BackpressureConfig,
    PublishResult,
    QosConfig,
    RateLimitConfig,
    Reason,
    Relay,
    Settings,
    TierLimits,
)
from waypost.testing import ManualClock

LIMITS = Settings(
    storage="journal",
    durability="async",
    watch_files=False,
    rate_limit=RateLimitConfig(window_secs=10, max_per_window=30),
    backpressure=BackpressureConfig(max_mailbox_size=12),
    qos=QosConfig(
        enabled=True,
        tier1=TierLimits(3, 2_000),
        tier2=TierLimits(5, 3_000),
        tier3=TierLimits(8, 4_000),
        bidirectional_window_ms=20_000,
        inbox_max_bytes=6_000,
    ),
)
AGENTS = [f"agent.n{n}" for n in range(5)]


def draft(subject: str, sender: str, size: int) -> dict[str, object]:
    return {"subject": subject, "payload": "x" * size, "sender": sender}


async def test_mailboxes_and_quotas_stay_within_their_limits(tmp_path: Path) -> None:
    clock = ManualClock()
    with seeded() as chance:
        async with Relay(tmp_path, settings=LIMITS, clock=clock) as relay:
            for agent in AGENTS:
                relay.register_endpoint(agent)
            for _ in range(400):
                subject = chance.choice([*AGENTS, "agent.*"])
                wanted = [
                    draft(subject, chance.choice(AGENTS), chance.randrange(800))
                    for _ in range(chance.randrange(1, 6))
                ]
                await relay.publish_many(wanted)
                assert_within_limits(relay)
                clock.advance_ms(chance.choice([0, 10, 500, 3_000]))
                if chance.random() < 0.3:
                    await drain(relay, chance.choice(AGENTS), chance.randrange(1, 6))


def assert_within_limits(relay: Relay) -> None:
    for one in relay.metrics().endpoints:
        assert one.pending + one.leased <= LIMITS.backpressure.max_mailbox_size
        assert one.bytes <= LIMITS.qos.inbox_max_bytes
        for _, count, size in one.top_senders:
            assert count <= LIMITS.qos.tier3.max_envelopes
            assert size <= LIMITS.qos.tier3.max_bytes


async def drain(relay: Relay, endpoint: str, count: int) -> None:
    leased = await relay.lease(endpoint, limit=count)
    await relay.ack(endpoint, [one.id for one in leased[::2]])


def passed(result: PublishResult) -> bool:
    return all(one.reason is not Reason.RATE_LIMITED for one in result.rejected)


async def test_no_window_holds_more_than_its_limit(tmp_path: Path) -> None:
    clock, limit = ManualClock(), LIMITS.rate_limit
    times: dict[str, list[int]] = {}
    with seeded() as chance:
        async with Relay(tmp_path, settings=LIMITS, clock=clock) as relay:
            for agent in AGENTS:
                relay.register_endpoint(agent)
            for _ in range(900):
                sender = chance.choice(AGENTS[:2])
                result = await relay.publish(**draft(chance.choice([*AGENTS, ">"]), sender, 10))
                if passed(result):
                    times.setdefault(sender, []).append(clock() // 1000)
                clock.advance_ms(chance.choice([0, 0, 0, 100, 400]))
    for sent in times.values():
        for start in sent:
            within = [at for at in sent if start <= at < start + limit.window_secs * 1000]
            assert len(within) <= limit.max_per_window


@pytest.mark.parametrize("endpoints", [1, 3])
async def test_a_flood_against_full_mailboxes_counts_against_its_sender(
    tmp_path: Path, endpoints: int
) -> None:
    """Also above a thousand rejections per minute, which the journal only counts."""
    settings = msgspec.structs.replace(
        LIMITS,
        rate_limit=RateLimitConfig(window_secs=60, max_per_window=1_200),
        backpressure=BackpressureConfig(max_mailbox_size=1),
        qos=QosConfig(),
    )
    async with Relay(tmp_path, settings=settings, clock=ManualClock()) as relay:
        for agent in AGENTS[:endpoints]:
            relay.register_endpoint(agent)
        results: list[PublishResult] = []
        for _ in range(15):
            results += await relay.publish_many([draft("agent.*", "agent.flood", 1)] * 100)
        assert sum(map(passed, results)) == 1_200


async def test_a_flood_of_rejections_does_not_fill_the_journal(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(
        LIMITS, rate_limit=RateLimitConfig(window_secs=60, max_per_window=1)
    )
    clock = ManualClock()
    async with Relay(tmp_path, settings=settings, clock=clock) as relay:
        relay.register_endpoint(AGENTS[0])
        for _ in range(50):
            await relay.publish_many([draft(AGENTS[0], "agent.flood", 1)] * 100)
    rejected = [event for event in plain_journal.committed(tmp_path) if event["kind"] == "rejected"]
    assert len(rejected) <= 1_001
    assert sum(event.get("count", 1) for event in rejected) == 4_999
