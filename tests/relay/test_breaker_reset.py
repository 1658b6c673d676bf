"""An operator resets a circuit breaker."""

from pathlib import Path

import pytest

from tests.relay.observing import events, reasons, send
from waypost import CircuitBreakerConfig, Reason, Relay, UnknownEndpoint
from waypost.testing import ManualClock

FRAGILE = CircuitBreakerConfig(failure_threshold=2, cooldown_ms=10_000)


async def fail(relay: Relay, times: int) -> None:
    for _ in range(times):
        await send(relay)
        for one in await relay.lease("agent.a"):
            await relay.nack("agent.a", one.id, delay=3600)


@pytest.fixture
async def relay(start) -> Relay:
    opened = await start(circuit_breaker=FRAGILE)
    opened.register_endpoint("agent.a")
    return opened


async def test_a_reset_closes_an_open_breaker_at_once(relay: Relay, data: Path) -> None:
    await fail(relay, 2)
    assert reasons(await send(relay)) == [Reason.CIRCUIT_OPEN]
    assert await relay.reset_breaker("agent.a") == "OPEN"
    assert (await send(relay)).delivered_to == 1
    moved = events(data, "breaker")[-1]
    assert (moved["before"], moved["after"]) == ("OPEN", "CLOSED")
    assert moved["occasion"] == "reset by hand"


async def test_a_reset_ends_the_probes_of_a_half_open_breaker(
    relay: Relay, clock: ManualClock
) -> None:
    await fail(relay, 2)
    clock.advance_ms(10_000)
    consumer = relay.attach("agent.a", lambda: None)
    await send(relay, "probe")
    assert reasons(await send(relay)) == [Reason.CIRCUIT_OPEN]
    assert await relay.reset_breaker("agent.a") == "HALF_OPEN"
    assert (await send(relay)).delivered_to == 1
    consumer.detach()
    assert relay.metrics().breakers == {}


async def test_a_reset_of_a_closed_breaker_forgets_its_failures_and_is_journaled(
    relay: Relay, data: Path
) -> None:
    await fail(relay, 1)
    assert await relay.reset_breaker("agent.a") == "CLOSED"
    await fail(relay, 1)
    assert relay.metrics().breakers["agent.a"].consecutive_failures == 1
    assert [(one["before"], one["after"]) for one in events(data, "breaker")] == [
        ("CLOSED", "CLOSED")
    ]


async def test_a_reset_of_a_breaker_at_rest_changes_nothing(relay: Relay, data: Path) -> None:
    assert await relay.reset_breaker("agent.a") == "CLOSED"
    assert events(data, "breaker") == []


async def test_an_unknown_endpoint_has_no_breaker(relay: Relay) -> None:
    with pytest.raises(UnknownEndpoint):
        await relay.reset_breaker("agent.nobody")
