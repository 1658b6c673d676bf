"""Relays with varied traffic, on a manual clock."""

from pathlib import Path

from waypost import (
    AccessRule,
    BackpressureConfig,
    Budget,
    QosConfig,
    RateLimitConfig,
    Relay,
    Settings,
)
from waypost.policy.settings import HousekeepingConfig
from waypost.testing import ManualClock

START_US = 1_767_225_600_000_000  # 2026-01-01
HOUR_MS = 3_600_000

SETTINGS = Settings(
    storage="journal",
    durability="async",
    watch_files=False,
    rate_limit=RateLimitConfig(max_per_window=20),
    backpressure=BackpressureConfig(max_mailbox_size=12),
    qos=QosConfig(enabled=True),
    housekeeping=HousekeepingConfig(segment_max_age_ms=1000 * HOUR_MS),  # tests seal them
)


def relay_at(data: Path, clock: ManualClock) -> Relay:
    return Relay(data, settings=SETTINGS, clock=clock)


async def run_traffic(relay: Relay, clock: ManualClock, rounds: int = 3) -> None:
    """Store, ack, return, reject, expire and dead-letter messages, over some hours."""
    for subject in ("agent.a", "agent.b", "agent.c"):
        if relay.get_endpoint(subject) is None:
            relay.register_endpoint(subject)
    for number in range(rounds):
        await one_round(relay, clock, number)


async def one_round(relay: Relay, clock: ManualClock, number: int) -> None:
    for count in range(30):  # the rate limit, then a counted flood
        await relay.publish("agent.a", {"n": count, "word": "grüße\n"}, sender=f"agent.f{number}")
        clock.advance_ms(3)
    await relay.publish("agent.>", "x" * 6000, sender="agent.b", reply_to="agent.b")
    await relay.publish("agent.nobody", None, sender="agent.b")
    spent = Budget(
        hop_count=5,
        max_hops=5,
        ancestor_chain=["agent.c"],
        ttl=clock() // 1000 + HOUR_MS,
        call_budget_remaining=1,
    )
    await relay.publish("agent.b", [1, {"payload": '"'}], sender="agent.c", budget=spent)
    leased = await relay.lease("agent.a", limit=6)
    ids = [message.id for message in leased]
    await relay.nack("agent.a", ids[:2], delay=1.0)
    await relay.ack("agent.a", ids[2:])
    relay.access.add_rule(AccessRule(from_="agent.z", to=">", action="deny", priority=number))
    clock.advance_ms(2 * HOUR_MS)
    dead_letters = await relay.dead_letters("agent.b")
    await relay.redrive([one.envelope.id for one in dead_letters][:1])
