"""Event times never go back, and every event of one decision has the time of that decision."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.relay.observing import events
from waypost import (
    BackpressureConfig,
    CircuitBreakerConfig,
    HousekeepingConfig,
    QosConfig,
    RateLimitConfig,
    Relay,
    Settings,
)
from waypost.testing import ManualClock
from waypost.wire.events import PairSeen

SENDERS = ("agent.x", "agent.y")
CROWDED = Settings(
    storage="journal",
    durability="async",
    watch_files=False,
    default_ttl_ms=2000,
    lease_timeout_ms=1500,
    rate_limit=RateLimitConfig(max_per_window=8, window_secs=1),
    backpressure=BackpressureConfig(max_mailbox_size=6),
    circuit_breaker=CircuitBreakerConfig(failure_threshold=2, cooldown_ms=1000),
    qos=QosConfig(enabled=True, inbox_max_bytes=1200, overflow="evict_least_known"),
    housekeeping=HousekeepingConfig(
        segment_max_age_ms=3000,
        journal_retention_ms=4000,
        dead_letter_retention_ms=2500,
        breaker_idle_ms=2000,
    ),
)


class TickingClock(ManualClock):
    """Time passes between any two looks at it, as it does in real life."""

    tick_us = 137

    def __call__(self) -> int:
        self.now_us += self.tick_us
        return self.now_us


def times(data: Path) -> list[int]:
    return [event["at_us"] for event in events(data)]


def relay_with_new_mailboxes(data: Path, clock: TickingClock) -> Relay:
    """Return a relay that registers each literal subject on its first message."""

    def create_mailbox(subject: str) -> bool:
        if ">" not in subject:
            relay.register_endpoint(subject)
        return ">" not in subject

    relay = Relay(data, settings=CROWDED, clock=clock, create_mailbox=create_mailbox)
    return relay


async def act(relay: Relay, clock: TickingClock, step: tuple[str, int]) -> None:
    """Carry out one step; `n` chooses among its variants."""
    name, n = step
    subject = f"agent.a{n % 3}"
    match name:
        case "publish":
            payload = "p" * (50 * (n % 7))
            await relay.publish(subject, payload, sender=SENDERS[n % 2], message_id=f"id-{n}")
        case "fan out":
            await relay.publish("agent.>", n, sender=SENDERS[n % 2])
        case "lease" if relay.get_endpoint(subject):
            for envelope in await relay.lease(subject, limit=3):
                await (relay.nack if n % 2 else relay.ack)(subject, envelope.id)
        case "keep" if relay.get_endpoint(subject):
            await relay.lease(subject, limit=2)
        case "register":
            relay.register_endpoint(subject)
        case "unregister" if relay.get_endpoint(subject):
            relay.unregister_endpoint(subject)
        case "fail":
            stop = relay.subscribe(subject, lambda envelope: 1 // 0)
            await relay.publish(subject, n, sender=SENDERS[n % 2])
            await relay.idle()
            stop()
        case "redrive":
            await relay.redrive([one.envelope.id for one in await relay.dead_letters()])
        case "sweep":
            relay.sweep()
        case "wait":
            clock.advance_ms(40 * n)
        case "seal":
            await relay.seal_journal()


STEPS = st.tuples(
    st.sampled_from(
        [
            "publish",
            "publish",
            "publish",
            "lease",
            "keep",
            "register",
            "unregister",
            "fail",
            "redrive",
            "sweep",
            "wait",
            "seal",
            "fan out",
        ]
    ),
    st.integers(0, 120),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=60), st.integers(1, 3000))
def test_event_times_never_go_back(steps: list[tuple[str, int]], tick_us: int) -> None:
    async def live(data: Path) -> None:
        clock = TickingClock()
        clock.tick_us = tick_us
        relay = relay_with_new_mailboxes(data, clock)
        async with relay:
            for step in steps:
                await act(relay, clock, step)
        async with relay:
            await relay.publish("agent.a0", 1, sender="agent.x")

    with TemporaryDirectory() as directory:
        asyncio.run(live(Path(directory)))
        found = times(Path(directory))
        assert found == sorted(found)


async def test_a_mailbox_made_on_the_fly_has_the_time_of_its_first_message(data: Path) -> None:
    async with relay_with_new_mailboxes(data, TickingClock()) as relay:
        await relay.publish("agent.new", 1, sender="agent.x")
    endpoint, accepted = events(data, "endpoint", "accepted")
    assert (endpoint["kind"], endpoint["at_us"]) == ("endpoint", accepted["at_us"])


async def test_every_event_of_an_eviction_has_the_time_of_its_cause(data: Path) -> None:
    clock = TickingClock()
    async with Relay(data, settings=CROWDED, clock=clock) as relay:
        relay.register_endpoint("agent.a")
        while not events(data, "evicted"):
            await relay.publish("agent.a", "p" * 300, sender="agent.x")
            await relay.sync()
    evicted = events(data, "evicted")
    cause = events(data, "accepted")[-1]
    assert {event["at_us"] for event in evicted} == {cause["at_us"]}


async def test_an_event_that_comes_late_gets_the_time_of_the_one_before(data: Path) -> None:
    async with Relay(data, settings=CROWDED, clock=TickingClock()) as relay:
        relay.register_endpoint("agent.a")
        relay._runtime.ledger.record(
            PairSeen(at_us=1, sender="agent.x", endpoint="agent.a", seen_ms=1)
        )
    before, late = events(data)[-2:]
    assert (late["kind"], late["at_us"]) == ("seen", before["at_us"])
