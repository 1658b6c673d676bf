"""The outcomes of messages, and the probe slots that they hold."""

import pytest

from waypost.policy.breakers import (
    CircuitBreakerConfig,
    CircuitBreakers,
    CircuitState,
    DeliveryOutcome,
)

SUCCESS, FAILURE, NO_VERDICT = DeliveryOutcome
CLOSED, OPEN = CircuitState.CLOSED, CircuitState.OPEN
COOLDOWN = 30_000


def opened(**fields: int) -> CircuitBreakers:
    """Return breakers with that of "a" just opened."""
    breakers = CircuitBreakers(CircuitBreakerConfig(**fields))
    while breakers.state_of("a") is not OPEN:
        breakers.record_failure("a", 0)
    return breakers


def probed(**fields: int) -> CircuitBreakers:
    """Return breakers with that of "a" half-open; the message "probe" is in flight."""
    breakers = opened(**fields)
    assert breakers.check("a", COOLDOWN, "probe").probe
    return breakers


@pytest.mark.parametrize("ok", [True, False])
def test_a_half_open_circuit_counts_the_outcomes_of_probes_only(ok: bool) -> None:
    breakers = probed(success_to_close=1)
    outcome = SUCCESS if ok else FAILURE
    before = breakers.get_states()["a"]
    assert breakers.settle("a", "another", outcome, COOLDOWN + 5) is None
    assert breakers.get_states()["a"] == before
    moved = breakers.settle("a", "probe", outcome, COOLDOWN + 5)
    assert moved is not None
    assert moved.after is (CLOSED if ok else OPEN)


def test_a_closed_circuit_counts_every_outcome() -> None:
    breakers = CircuitBreakers(CircuitBreakerConfig(failure_threshold=2))
    for outcome in (FAILURE, SUCCESS, FAILURE, NO_VERDICT):
        breakers.settle("a", "m-1", outcome, 0)
    assert breakers.state_of("a") is CLOSED
    breakers.settle("a", "m-2", FAILURE, 0)
    assert breakers.state_of("a") is OPEN


@pytest.mark.parametrize("outcome", [SUCCESS, FAILURE, NO_VERDICT])
@pytest.mark.parametrize("enabled", [True, False])
def test_every_outcome_of_a_probe_frees_its_slot(outcome: DeliveryOutcome, enabled: bool) -> None:
    breakers = probed()
    breakers.update_config(CircuitBreakerConfig(enabled=enabled))
    breakers.settle("a", "probe", outcome, COOLDOWN)
    assert breakers.get_states()["a"].probes == []


def test_a_slot_is_freed_by_its_own_message_only() -> None:
    breakers = probed()
    for outcome in (SUCCESS, FAILURE, NO_VERDICT):
        breakers.settle("a", "another", outcome, COOLDOWN)
    breakers.release_probe("a")
    assert breakers.probes() == [("a", "probe")]


def test_a_probe_of_an_earlier_half_open_time_is_a_probe_no_longer() -> None:
    breakers = probed(half_open_probe_count=2, success_to_close=1)
    breakers.check("a", COOLDOWN, "slow")
    breakers.settle("a", "probe", FAILURE, COOLDOWN)
    breakers.check("a", 2 * COOLDOWN, "new")
    assert breakers.settle("a", "slow", SUCCESS, 2 * COOLDOWN) is None
    assert breakers.probes() == [("a", "new")]


def test_a_message_stored_before_the_circuit_opened_does_not_prolong_the_cooldown() -> None:
    breakers = opened()
    breakers.settle("a", "older", FAILURE, COOLDOWN - 1)
    assert breakers.check("a", COOLDOWN).probe
