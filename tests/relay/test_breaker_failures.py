"""Failed deliveries of leases count for the breaker of their endpoint."""

import pytest

from tests.relay.observing import reasons, send
from waypost import CircuitBreakerConfig, Reason, Relay
from waypost.testing import ManualClock

FRAGILE = CircuitBreakerConfig(failure_threshold=3, cooldown_ms=10_000, success_to_close=2)


def state_of(relay: Relay) -> str:
    breaker = relay.metrics().breakers.get("agent.a")
    return breaker.state if breaker else "CLOSED"


@pytest.mark.parametrize("storage", ["maildir", "journal"])
@pytest.mark.parametrize("end", ["nack", "time out"])
async def test_failed_leases_open_the_breaker(start, clock: ManualClock, storage, end) -> None:
    relay = await start(circuit_breaker=FRAGILE, storage=storage, lease_timeout_ms=1_000)
    relay.register_endpoint("agent.a")
    for _ in range(3):
        await send(relay)
    ids = [one.id for one in await relay.lease("agent.a")]
    if end == "nack":
        await relay.nack("agent.a", ids)
    else:
        clock.advance_ms(1_000)
    assert state_of(relay) == "OPEN"
    assert reasons(await send(relay)) == [Reason.CIRCUIT_OPEN]


async def test_messages_stored_between_failures_do_not_keep_the_breaker_closed(start) -> None:
    relay = await start(circuit_breaker=FRAGILE)
    relay.register_endpoint("agent.a")
    for _ in range(3):
        await send(relay)
        for one in await relay.lease("agent.a", limit=1):
            await relay.nack("agent.a", one.id, delay=60)
    assert state_of(relay) == "OPEN"


async def test_an_acknowledgement_between_failures_keeps_the_breaker_closed(start) -> None:
    relay = await start(circuit_breaker=FRAGILE)
    relay.register_endpoint("agent.a")
    for number in range(5):
        await send(relay)
        (one,) = await relay.lease("agent.a", limit=1)
        if number == 2:
            await relay.ack("agent.a", one.id)
        else:
            await relay.nack("agent.a", one.id, delay=60)
    assert state_of(relay) == "CLOSED"


async def test_returns_without_a_verdict_do_not_open_the_breaker(start) -> None:
    relay = await start(circuit_breaker=FRAGILE)
    relay.register_endpoint("agent.a")
    for _ in range(5):
        await send(relay)
    for _ in range(3):
        taken = await relay.lease("agent.a")
        relay.claims.release("agent.a", [one.id for one in taken])
    relay = await start(circuit_breaker=FRAGILE)
    assert relay.metrics().breakers == {}
