"""Circuit breakers, state by state. `test_breakers_model.py` walks them at random."""

from collections.abc import Callable

import pytest

from waypost.policy.breakers import (
    TRANSITIONS,
    CircuitBreakerConfig,
    CircuitBreakers,
    CircuitState,
    Occasion,
    Transition,
)

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
COOLDOWN = 30_000


def breakers_of(**fields: int) -> CircuitBreakers:
    return CircuitBreakers(CircuitBreakerConfig(**fields))


def opened(at_ms: int = 0, **fields: int) -> CircuitBreakers:
    """Return breakers with that of "a" just opened."""
    breakers = breakers_of(**fields)
    while breakers.state_of("a") is not OPEN:
        breakers.record_failure("a", at_ms)
    return breakers


def half_open(**fields: int) -> CircuitBreakers:
    """Return breakers with that of "a" half-open and one probe in flight."""
    breakers = opened(**fields)
    assert breakers.check("a", COOLDOWN).probe
    return breakers


# --- CLOSED --------------------------------------------------------------------------------------


def test_an_endpoint_never_heard_of_is_closed_and_lets_through() -> None:
    breakers = breakers_of()
    result = breakers.check("a", 0)
    assert (result.allowed, result.state, result.reason) == (True, CLOSED, None)
    assert (result.probe, result.transition, result.retry_after_ms) == (False, None, 0)


def test_asking_about_an_endpoint_takes_no_memory() -> None:
    breakers = breakers_of()
    breakers.check("a", 0)
    breakers.state_of("a")
    breakers.record_success("a", 0)
    assert len(breakers) == 0


def test_consecutive_failures_are_counted() -> None:
    breakers = breakers_of()
    for _ in range(3):
        breakers.record_failure("a", 7)
    assert breakers.get_states()["a"].consecutive_failures == 3
    assert breakers.check("a", 7).allowed


def test_one_failure_short_of_the_threshold_the_circuit_stays_closed() -> None:
    breakers = breakers_of()
    assert [breakers.record_failure("a", 0) for _ in range(4)] == [None] * 4
    assert breakers.state_of("a") is CLOSED


def test_the_threshold_opens_the_circuit() -> None:
    breakers = breakers_of(failure_threshold=2)
    breakers.record_failure("a", 0)
    moved = breakers.record_failure("a", 5)
    assert moved == Transition("a", CLOSED, OPEN, Occasion.FAILURES_REACHED)
    assert breakers.get_states()["a"].opened_at == 5


def test_a_success_between_failures_starts_the_count_again() -> None:
    breakers = breakers_of(failure_threshold=2)
    breakers.record_failure("a", 0)
    breakers.record_success("a", 0)
    breakers.record_failure("a", 0)
    assert breakers.state_of("a") is CLOSED


def test_a_breaker_at_rest_takes_no_memory() -> None:
    breakers = breakers_of()
    breakers.record_failure("a", 0)
    breakers.record_success("a", 0)
    assert len(breakers) == 0


# --- OPEN ----------------------------------------------------------------------------------------


def test_an_open_circuit_rejects_and_names_the_endpoint() -> None:
    result = opened().check("a", 1)
    assert (result.allowed, result.state, result.probe) == (False, OPEN, False)
    assert result.reason == "circuit open for endpoint a"


def test_an_open_circuit_has_a_retry_time() -> None:
    breakers = opened(at_ms=1000)
    assert breakers.check("a", 1000).retry_after_ms == COOLDOWN
    assert breakers.check("a", 1000 + COOLDOWN - 1).retry_after_ms == 1


def test_a_circuit_stays_open_until_the_cooldown_ends() -> None:
    breakers = opened(cooldown_ms=1000)
    assert not breakers.check("a", 999).allowed
    assert breakers.state_of("a") is OPEN


def test_the_first_check_after_the_cooldown_half_opens_and_is_a_probe() -> None:
    breakers = opened(cooldown_ms=1000)
    result = breakers.check("a", 1000)
    assert (result.allowed, result.state, result.probe) == (True, HALF_OPEN, True)
    assert result.transition == Transition("a", OPEN, HALF_OPEN, Occasion.COOLDOWN_ELAPSED)


def test_time_alone_does_not_move_a_breaker() -> None:
    breakers = opened()
    assert breakers.state_of("a") is OPEN
    assert breakers.get_states()["a"].state is OPEN


def test_a_failure_while_open_does_not_prolong_it() -> None:
    breakers = opened(cooldown_ms=1000)
    assert breakers.record_failure("a", 900) is None
    assert breakers.check("a", 1000).allowed


def test_a_success_while_open_does_not_close_it() -> None:
    breakers = opened()
    assert breakers.record_success("a", 1) is None
    assert not breakers.check("a", 2).allowed


# --- HALF_OPEN -----------------------------------------------------------------------------------


def test_only_one_probe_is_let_through_by_default() -> None:
    result = half_open().check("a", COOLDOWN)
    assert (result.allowed, result.state, result.probe) == (False, HALF_OPEN, False)
    assert result.reason == "circuit half-open for endpoint a: waiting for its probe"


def test_as_many_probes_as_configured_are_let_through() -> None:
    breakers = half_open(half_open_probe_count=3)
    assert [breakers.check("a", COOLDOWN).allowed for _ in range(4)] == [True, True, False, False]


def test_only_the_first_probe_reports_the_transition() -> None:
    assert half_open(half_open_probe_count=2).check("a", COOLDOWN).transition is None


def test_a_good_probe_makes_room_for_the_next() -> None:
    breakers = half_open()
    assert breakers.record_success("a", COOLDOWN) is None
    assert breakers.state_of("a") is HALF_OPEN
    assert breakers.check("a", COOLDOWN).probe


def test_a_released_probe_frees_its_slot_and_is_not_counted() -> None:
    breakers = half_open(success_to_close=1)
    breakers.release_probe("a")
    assert breakers.state_of("a") is HALF_OPEN
    assert breakers.check("a", COOLDOWN).probe


def test_giving_back_more_than_was_taken_opens_no_extra_slot() -> None:
    breakers = half_open()
    for _ in range(3):
        breakers.release_probe("a")
    assert [breakers.check("a", COOLDOWN).allowed for _ in range(2)] == [True, False]


def test_giving_back_a_probe_of_an_unknown_endpoint_does_nothing() -> None:
    breakers = breakers_of()
    breakers.release_probe("a")
    assert len(breakers) == 0


def test_enough_successes_close_the_circuit_and_forget_everything() -> None:
    breakers = half_open(success_to_close=2)
    breakers.record_success("a", COOLDOWN)
    moved = breakers.record_success("a", COOLDOWN)
    assert moved == Transition("a", HALF_OPEN, CLOSED, Occasion.SUCCESSES_REACHED)
    assert len(breakers) == 0


def test_after_closing_it_takes_the_whole_threshold_to_open_again() -> None:
    breakers = half_open(success_to_close=1, failure_threshold=2)
    breakers.record_success("a", COOLDOWN)
    breakers.record_failure("a", COOLDOWN)
    assert breakers.state_of("a") is CLOSED


def test_one_failed_probe_opens_the_circuit_again() -> None:
    moved = half_open().record_failure("a", COOLDOWN + 5)
    assert moved == Transition("a", HALF_OPEN, OPEN, Occasion.PROBE_FAILED)


def test_reopening_starts_the_cooldown_afresh() -> None:
    breakers = half_open()
    breakers.record_failure("a", COOLDOWN + 5)
    assert breakers.check("a", COOLDOWN + 5).retry_after_ms == COOLDOWN
    assert breakers.check("a", 2 * COOLDOWN + 5).probe


def test_reopening_forgets_the_successes_so_far() -> None:
    breakers = half_open(success_to_close=2)
    breakers.record_success("a", COOLDOWN)
    breakers.record_failure("a", COOLDOWN)
    assert breakers.get_states()["a"].half_open_successes == 0
    breakers.check("a", 2 * COOLDOWN)
    assert breakers.record_success("a", 2 * COOLDOWN) is None


def test_reopening_frees_the_slots_of_the_other_probes() -> None:
    breakers = half_open(half_open_probe_count=2)
    breakers.check("a", COOLDOWN)
    breakers.record_failure("a", COOLDOWN)
    allowed = [breakers.check("a", 2 * COOLDOWN).allowed for _ in range(3)]
    assert allowed == [True, True, False]


# --- Many breakers -------------------------------------------------------------------------------


def test_breakers_are_independent() -> None:
    breakers = opened()
    breakers.record_failure("b", 0)
    assert not breakers.check("a", 1).allowed
    assert breakers.check("b", 1).allowed
    assert breakers.get_states()["b"].consecutive_failures == 1


def test_the_states_are_copies() -> None:
    breakers = opened()
    states = breakers.get_states()
    states["a"].state = CLOSED
    del states["a"]
    assert breakers.state_of("a") is OPEN


@pytest.mark.parametrize("make", [opened, half_open])
def test_a_reset_closes_one_breaker_and_returns_the_transition(
    make: Callable[[], CircuitBreakers],
) -> None:
    breakers = make()
    breakers.record_failure("b", 0)
    before = breakers.state_of("a")
    assert breakers.reset("a") == Transition("a", before, CLOSED, Occasion.RESET)
    assert breakers.check("a", 1).allowed
    assert list(breakers.get_states()) == ["b"]


def test_resetting_a_closed_breaker_forgets_its_failures_silently() -> None:
    breakers = breakers_of(failure_threshold=2)
    breakers.record_failure("a", 0)
    assert breakers.reset("a") is None
    assert breakers.record_failure("a", 0) is None


def test_resetting_an_unknown_breaker_does_nothing() -> None:
    assert breakers_of().reset("a") is None


# --- Configuration -------------------------------------------------------------------------------


def test_the_defaults_are_five_failures_thirty_seconds_one_probe_two_successes() -> None:
    assert CircuitBreakers().config == CircuitBreakerConfig(
        enabled=True,
        failure_threshold=5,
        cooldown_ms=30_000,
        half_open_probe_count=1,
        success_to_close=2,
    )


def test_a_new_threshold_applies_to_the_failures_already_counted() -> None:
    breakers = breakers_of(failure_threshold=5)
    breakers.record_failure("a", 0)
    breakers.update_config(CircuitBreakerConfig(failure_threshold=2))
    assert breakers.record_failure("a", 0) is not None


def test_a_new_cooldown_applies_to_circuits_already_open() -> None:
    breakers = opened()
    breakers.update_config(CircuitBreakerConfig(cooldown_ms=1000))
    assert breakers.check("a", 1000).allowed


def test_switched_off_everything_passes_even_through_an_open_circuit() -> None:
    breakers = opened()
    breakers.update_config(CircuitBreakerConfig(enabled=False))
    result = breakers.check("a", 1)
    assert (result.allowed, result.state, result.probe) == (True, CLOSED, False)


def test_switched_off_no_failure_is_counted() -> None:
    breakers = breakers_of(enabled=False, failure_threshold=1)
    assert breakers.record_failure("a", 0) is None
    assert len(breakers) == 0


def test_failures_longer_ago_than_the_idle_time_do_not_add_up() -> None:
    config = CircuitBreakerConfig(failure_threshold=2, cooldown_ms=1000)
    breakers = CircuitBreakers(config, idle_ms=60_000)
    breakers.record_failure("a", 0)
    assert breakers.record_failure("a", 60_000) is None
    assert breakers.record_failure("a", 119_999) is not None


# --- Sweeping ------------------------------------------------------------------------------------


def test_a_breaker_without_recent_outcomes_is_forgotten() -> None:
    breakers = opened(at_ms=0)
    assert breakers.sweep(59_999, idle_ms=60_000) == []
    (move,) = breakers.sweep(60_000, idle_ms=60_000)
    assert (move.before, move.after, move.occasion) == (OPEN, CLOSED, Occasion.IDLE)
    assert breakers.state_of("a") is CLOSED
    assert len(breakers) == 0


def test_failures_long_ago_are_forgotten_without_a_move() -> None:
    breakers = breakers_of()
    breakers.record_failure("a", 0)
    assert breakers.sweep(60_000, idle_ms=60_000) == []
    assert len(breakers) == 0


def test_a_breaker_is_not_forgotten_before_its_cooldown_ends() -> None:
    breakers = opened(at_ms=0)
    assert breakers.sweep(COOLDOWN - 1, idle_ms=1) == []
    assert not breakers.check("a", COOLDOWN - 1).allowed


def test_a_failure_keeps_a_breaker_from_being_forgotten() -> None:
    breakers = breakers_of()
    breakers.record_failure("a", 0)
    breakers.record_failure("a", 50_000)
    assert breakers.sweep(60_000, idle_ms=60_000) == []
    assert len(breakers) == 1


def test_a_probe_that_never_ends_is_freed_by_the_sweep() -> None:
    breakers = half_open()
    assert not breakers.check("a", COOLDOWN + 59_999).allowed
    assert len(breakers.sweep(COOLDOWN + 60_000, idle_ms=60_000)) == 1
    assert breakers.check("a", COOLDOWN + 60_000).allowed


# --- The table -----------------------------------------------------------------------------------


def test_the_table_is_the_whole_machine() -> None:
    arrows = {(before, after) for (before, _), after in TRANSITIONS.items()}
    assert arrows == {(CLOSED, OPEN), (OPEN, HALF_OPEN), (HALF_OPEN, OPEN), (HALF_OPEN, CLOSED)} | {
        (OPEN, CLOSED)  # by hand, or after long idleness
    }
    assert [key for key in TRANSITIONS if key[0] is OPEN and TRANSITIONS[key] is CLOSED] == [
        (OPEN, Occasion.RESET),
        (OPEN, Occasion.IDLE),
    ]


def test_every_occasion_moves_something() -> None:
    assert {occasion for _, occasion in TRANSITIONS} == set(Occasion)
