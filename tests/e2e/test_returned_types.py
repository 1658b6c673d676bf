"""Public types are those of the values that the interface takes and returns."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import waypost
from waypost import (
    AccessResult,
    AccessRule,
    BackpressureResult,
    Budget,
    BudgetResult,
    CircuitBreakerResult,
    CircuitBreakers,
    CircuitBreakerState,
    CircuitState,
    DeadLetter,
    Envelope,
    GuardRejectionReason,
    GuardResult,
    MessageHandler,
    MessagingGuard,
    MessagingGuardConfig,
    RateLimitResult,
    Relay,
    RelayMetrics,
    ReliabilityConfig,
    Settings,
    SignalHandler,
    SubscriptionInfo,
    check_backpressure,
    check_rate_limit,
    create_default_budget,
    enforce_budget,
)
from waypost.testing import ManualClock
from waypost.wire.frames import FromRelay


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[Relay]:
    async with Relay(tmp_path, clock=ManualClock(10**15)) as relay:
        relay.register_endpoint("agent.a")
        yield relay


async def test_a_relay_returns_its_metrics_and_breakers(relay: Relay) -> None:
    metrics = relay.metrics()
    assert type(metrics) is RelayMetrics
    assert get_type_hints(RelayMetrics)["breakers"] == dict[str, CircuitBreakerState]


async def test_subscriptions_are_listed_with_their_information(relay: Relay) -> None:
    def handler(envelope: Envelope) -> None: ...

    relay.subscribe("agent.a", handler)
    [listed] = relay.list_subscriptions()
    assert type(listed) is SubscriptionInfo
    assert get_type_hints(Relay.subscribe)["handler"] == MessageHandler
    assert get_type_hints(Relay.on_signal)["handler"] == SignalHandler


async def test_dead_letters_are_listed_with_reason_and_hash(relay: Relay) -> None:
    await relay.publish("agent.a", 1, sender="agent.b", budget={"call_budget_remaining": 0})
    [dead] = await relay.dead_letters()
    assert type(dead) is DeadLetter
    assert (dead.reason, len(dead.endpoint_hash)) == ("call budget exhausted", 12)


async def test_an_access_check_names_the_matching_rule(relay: Relay) -> None:
    rule = AccessRule("agent.b", "agent.a", "deny")
    relay.access.add_rule(rule)
    assert relay.access.check_access("agent.b", "agent.a") == AccessResult(False, rule)


async def test_a_relay_takes_a_reliability_configuration(tmp_path: Path) -> None:
    reliability = ReliabilityConfig(rate_limit=waypost.RateLimitConfig(max_per_window=1))
    settings = Settings().with_reliability(reliability)
    async with Relay(tmp_path / "other", settings=settings) as relay:
        relay.register_endpoint("agent.a")
        await relay.publish("agent.a", 1, sender="agent.b")
        limited = await relay.publish("agent.a", 2, sender="agent.b")
    assert [one.reason for one in limited.rejected] == [waypost.Reason.RATE_LIMITED]


def test_the_pure_functions_return_their_results() -> None:
    assert type(check_rate_limit("agent.a", 1)) is RateLimitResult
    assert type(check_backpressure(1)) is BackpressureResult
    breakers = CircuitBreakers()
    assert breakers.check("agent.a", 0) == CircuitBreakerResult(True, CircuitState.CLOSED)
    breakers.record_failure("agent.a", 0)
    assert type(breakers.get_states()["agent.a"]) is CircuitBreakerState
    budget = create_default_budget(0)
    envelope = Envelope(
        id="m-1",
        subject="agent.a",
        sender="agent.b",
        budget=budget,
        created_at=datetime.now(UTC),
    )
    result = enforce_budget(envelope, "agent.a", 0)
    assert type(result) is BudgetResult
    assert type(result.updated_budget) is Budget


def test_a_guard_takes_its_configuration_and_returns_results() -> None:
    guard = MessagingGuard(MessagingGuardConfig(rate_limit_per_window=1))
    assert guard.check("agent.a", "agent.b") == GuardResult(True)
    assert guard.check("agent.a", "agent.b").reason is GuardRejectionReason.RATE_LIMITED
    guard.stop()


def test_queue_status_and_queue_full_are_operations_of_the_relay() -> None:
    assert {waypost.QueueStatus, waypost.QueueFull} <= set(get_args(FromRelay))
