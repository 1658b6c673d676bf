"""The messaging guard's decisions: the circuit of the recipient first, then the sender's rate."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.breakers import CircuitState, Occasion, Transition
from waypost.policy.guard import (
    BREAKER_IDLE_MS,
    SWEEP_INTERVAL_MS,
    GuardPolicy,
    GuardRejectionReason,
    GuardResult,
    MessagingGuardConfig,
    Swept,
)

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
CIRCUIT_OPEN, RATE_LIMITED = GuardRejectionReason.CIRCUIT_OPEN, GuardRejectionReason.RATE_LIMITED
ALLOWED = GuardResult(True)
RESET_MS = 30_000
WINDOW_MS = 60_000
STRANGERS = count()


def fail(policy: GuardPolicy, times: int, now_ms: int = 0, target: str = "target-1") -> None:
    for _ in range(times):
        policy.record_failure(target, now_ms)


def ask(policy: GuardPolicy, now_ms: int = 0, target: str = "target-1") -> GuardResult:
    """Return the decision for a new sender."""
    return policy.check(f"stranger-{next(STRANGERS)}", target, now_ms)[0]


def opened(**fields: int) -> GuardPolicy:
    policy = GuardPolicy(MessagingGuardConfig(**fields))
    fail(policy, policy.config.failure_threshold)
    return policy


# --- The circuit of a target ---------------------------------------------------------------------


def test_a_new_guard_allows_a_call() -> None:
    assert GuardPolicy().check("sender-1", "target-1", 0) == (ALLOWED, None)


def test_four_failures_in_a_row_leave_the_circuit_closed() -> None:
    policy = GuardPolicy()
    fail(policy, 4)
    assert ask(policy) == ALLOWED


def test_the_fifth_failure_in_a_row_opens_the_circuit() -> None:
    policy = GuardPolicy()
    fail(policy, 4)
    moved = policy.record_failure("target-1", 0)
    assert moved == Transition("target-1", CLOSED, OPEN, Occasion.FAILURES_REACHED)
    assert ask(policy) == GuardResult(False, CIRCUIT_OPEN, RESET_MS)


def test_a_success_between_failures_starts_the_count_again() -> None:
    policy = GuardPolicy()
    fail(policy, 4)
    policy.record_success("target-1", 0)
    fail(policy, 4)
    assert ask(policy) == ALLOWED


def test_an_open_circuit_rejects_every_sender() -> None:
    policy = opened()
    assert {ask(policy).reason for _ in range(3)} == {CIRCUIT_OPEN}


def test_the_wait_of_an_open_circuit_counts_down() -> None:
    policy = opened()
    waits = [ask(policy, now).retry_after_ms for now in (0, 1, 10_000, RESET_MS - 1)]
    assert waits == [RESET_MS, RESET_MS - 1, 20_000, 1]


def test_a_failure_of_one_recipient_does_not_affect_another() -> None:
    policy = opened()
    assert ask(policy, target="target-2") == ALLOWED


def test_after_the_timeout_one_probe_is_allowed_and_no_second() -> None:
    policy = opened()
    result, moved = policy.check("sender-1", "target-1", RESET_MS)
    assert result == ALLOWED
    assert moved == Transition("target-1", OPEN, HALF_OPEN, Occasion.COOLDOWN_ELAPSED)
    assert ask(policy, RESET_MS).reason is CIRCUIT_OPEN


def test_while_a_probe_is_in_flight_the_retry_time_is_that_of_its_failure() -> None:
    policy = opened()
    ask(policy, RESET_MS)
    assert ask(policy, RESET_MS + 5) == GuardResult(False, CIRCUIT_OPEN, RESET_MS)


def test_enough_good_probes_close_the_circuit() -> None:
    policy = opened()
    assert ask(policy, RESET_MS) == ALLOWED
    assert policy.record_success("target-1", RESET_MS) is None
    assert ask(policy, RESET_MS) == ALLOWED
    moved = policy.record_success("target-1", RESET_MS)
    assert moved == Transition("target-1", HALF_OPEN, CLOSED, Occasion.SUCCESSES_REACHED)


def test_one_failed_probe_opens_the_circuit_for_the_whole_timeout() -> None:
    policy = opened()
    ask(policy, RESET_MS)
    moved = policy.record_failure("target-1", RESET_MS + 7)
    assert moved == Transition("target-1", HALF_OPEN, OPEN, Occasion.PROBE_FAILED)
    assert ask(policy, RESET_MS + 7).retry_after_ms == RESET_MS


def test_successes_must_be_consecutive_to_close() -> None:
    policy = opened()
    ask(policy, RESET_MS)
    policy.record_success("target-1", RESET_MS)
    policy.record_failure("target-1", RESET_MS)
    ask(policy, 2 * RESET_MS)
    assert policy.record_success("target-1", 2 * RESET_MS) is None


def test_every_number_of_the_circuit_can_be_configured() -> None:
    policy = opened(failure_threshold=1, reset_timeout_ms=7, success_threshold=1)
    assert ask(policy).retry_after_ms == 7
    assert ask(policy, 7) == ALLOWED
    assert policy.record_success("target-1", 7) is not None


# --- The state as seen from outside --------------------------------------------------------------


def test_a_target_never_heard_of_is_closed_and_not_remembered() -> None:
    policy = GuardPolicy()
    assert policy.circuit_state("target-1", 0) == (CLOSED, None)
    assert policy.tracked() == (0, 0)


def test_reading_the_state_of_an_open_circuit_leaves_it_open() -> None:
    assert opened().circuit_state("target-1", RESET_MS - 1) == (OPEN, None)


def test_reading_the_state_after_the_timeout_half_opens_the_circuit() -> None:
    state, moved = opened().circuit_state("target-1", RESET_MS)
    assert state is HALF_OPEN
    assert moved == Transition("target-1", OPEN, HALF_OPEN, Occasion.COOLDOWN_ELAPSED)


def test_reading_the_state_takes_no_probe_slot() -> None:
    policy = opened()
    for _ in range(3):
        policy.circuit_state("target-1", RESET_MS)
    assert ask(policy, RESET_MS) == ALLOWED


def test_reading_the_state_during_a_probe_does_not_release_its_slot() -> None:
    policy = opened()
    ask(policy, RESET_MS)
    assert policy.circuit_state("target-1", RESET_MS) == (HALF_OPEN, None)
    assert ask(policy, RESET_MS).reason is CIRCUIT_OPEN


# --- The rate of a sender ------------------------------------------------------------------------


def spent(policy: GuardPolicy, now_ms: int = 0) -> GuardPolicy:
    """Return `policy` after "sender-1" has used up its window on other recipients."""
    for number in range(policy.config.rate_limit_per_window):
        assert policy.check("sender-1", f"other-{number}", now_ms)[0] == ALLOWED
    return policy


def test_the_eleventh_message_in_a_minute_is_rejected() -> None:
    policy = spent(GuardPolicy())
    result, _ = policy.check("sender-1", "target-1", 1000)
    assert result == GuardResult(False, RATE_LIMITED, WINDOW_MS - 1000)


def test_the_wait_of_a_limited_sender_is_that_of_its_oldest_message() -> None:
    policy = GuardPolicy(MessagingGuardConfig(rate_limit_per_window=2))
    for now in (100, 50_000):
        policy.check("sender-1", "target-1", now)
    waits = [policy.check("sender-1", "t", now)[0].retry_after_ms for now in (50_000, 60_099)]
    assert waits == [10_100, 1]


def test_when_the_oldest_message_leaves_the_window_one_more_fits() -> None:
    policy = spent(GuardPolicy(MessagingGuardConfig(rate_limit_per_window=2)))
    assert policy.check("sender-1", "target-1", WINDOW_MS - 1)[0].reason is RATE_LIMITED
    assert policy.check("sender-1", "target-1", WINDOW_MS)[0] == ALLOWED


def test_a_limited_sender_does_not_limit_another() -> None:
    assert ask(spent(GuardPolicy())) == ALLOWED


def test_a_rejected_message_is_not_counted() -> None:
    policy = spent(GuardPolicy())
    for now in range(0, WINDOW_MS, 1000):
        policy.check("sender-1", "target-1", now)
    assert policy.check("sender-1", "target-1", WINDOW_MS)[0] == ALLOWED


def test_outcomes_do_not_count_as_messages() -> None:
    policy = GuardPolicy(MessagingGuardConfig(rate_limit_per_window=1))
    policy.record_success("sender-1", 0)
    policy.record_failure("sender-1", 0)
    assert policy.check("sender-1", "target-1", 0)[0] == ALLOWED


def test_limit_and_window_can_be_configured() -> None:
    policy = spent(
        GuardPolicy(MessagingGuardConfig(rate_limit_per_window=3, rate_limit_window_ms=9))
    )
    assert policy.check("sender-1", "target-1", 8)[0].retry_after_ms == 1
    assert policy.check("sender-1", "target-1", 9)[0] == ALLOWED


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), max_size=60),
    st.integers(1, 4),
)
def test_no_sender_ever_gets_more_through_than_its_limit(
    steps: list[tuple[str, int]], limit: int
) -> None:
    config = MessagingGuardConfig(rate_limit_per_window=limit, rate_limit_window_ms=50)
    policy, passed, now = GuardPolicy(config), [], 0
    for sender, pause in steps:
        now += pause
        recent = [at for who, at in passed if who == sender and now - at < 50]
        result, _ = policy.check(sender, "target", now)
        if len(recent) < limit:
            assert result == ALLOWED
            passed.append((sender, now))
        else:
            assert result == GuardResult(False, RATE_LIMITED, recent[-limit] + 50 - now)


# --- Both at once --------------------------------------------------------------------------------


def test_an_open_circuit_is_reported_before_the_rate_limit() -> None:
    policy = spent(opened())
    assert policy.check("sender-1", "target-1", 0)[0].reason is CIRCUIT_OPEN


def test_a_call_rejected_by_the_circuit_is_not_counted_in_the_window() -> None:
    policy = opened(rate_limit_per_window=1)
    for _ in range(5):
        assert policy.check("sender-1", "target-1", 0)[0].reason is CIRCUIT_OPEN
    assert policy.check("sender-1", "target-2", 0)[0] == ALLOWED


def test_a_probe_that_the_rate_limit_rejects_is_released() -> None:
    policy = spent(opened(), now_ms=RESET_MS)
    result, moved = policy.check("sender-1", "target-1", RESET_MS)
    assert result.reason is RATE_LIMITED
    assert moved is not None
    assert ask(policy, RESET_MS) == ALLOWED


# --- Starting over -------------------------------------------------------------------------------


def test_resetting_a_circuit_closes_it_and_returns_the_transition() -> None:
    policy = opened()
    assert policy.reset_circuit("target-1") == Transition("target-1", OPEN, CLOSED, Occasion.RESET)
    fail(policy, 4)
    assert ask(policy) == ALLOWED


def test_resetting_a_circuit_does_not_affect_others() -> None:
    policy = opened()
    fail(policy, 5, target="target-2")
    policy.reset_circuit("target-1")
    assert ask(policy, target="target-2").reason is CIRCUIT_OPEN


def test_resetting_an_unknown_circuit_does_nothing() -> None:
    policy = GuardPolicy()
    assert policy.reset_circuit("target-1") is None
    assert policy.tracked() == (0, 0)


def test_resetting_everything_closes_circuits_and_empties_windows() -> None:
    policy = spent(opened())
    fail(policy, 1, target="target-2")
    assert policy.reset_all() == [Transition("target-1", OPEN, CLOSED, Occasion.RESET)]
    assert policy.tracked() == (0, 0)
    assert policy.check("sender-1", "target-1", 0)[0] == ALLOWED


# --- Sweeping ------------------------------------------------------------------------------------


def test_the_sweep_comes_every_five_minutes() -> None:
    assert SWEEP_INTERVAL_MS == 300_000


def test_the_sweep_forgets_senders_with_nothing_in_their_window() -> None:
    policy = GuardPolicy()
    policy.check("idle", "target-1", 0)
    policy.check("busy", "target-1", 1)
    assert policy.sweep(WINDOW_MS) == Swept(senders=1, circuits=0)
    assert policy.tracked() == (1, 0)


def test_the_sweep_forgets_closed_circuits_that_are_idle() -> None:
    policy = GuardPolicy()
    fail(policy, 4)
    fail(policy, 1, now_ms=1, target="target-2")
    assert policy.sweep(BREAKER_IDLE_MS) == Swept(senders=0, circuits=1)
    assert policy.tracked() == (0, 1)


def test_the_sweep_keeps_open_and_half_open_circuits() -> None:
    policy = opened()
    fail(policy, 5, target="target-2")
    policy.circuit_state("target-2", RESET_MS)
    assert policy.sweep(100 * BREAKER_IDLE_MS) == Swept(senders=0, circuits=0)
    assert policy.tracked() == (0, 2)


def test_after_any_number_of_sweeps_an_open_circuit_waits_for_its_probe() -> None:
    policy = opened()
    for sweeps in range(1, 10):
        policy.sweep(sweeps * BREAKER_IDLE_MS)
    later = 9 * BREAKER_IDLE_MS
    result, moved = policy.check("sender-1", "target-1", later)
    assert (result, moved) == (
        ALLOWED,
        Transition("target-1", OPEN, HALF_OPEN, Occasion.COOLDOWN_ELAPSED),
    )
    assert ask(policy, later).reason is CIRCUIT_OPEN


def test_the_sweep_releases_the_slot_of_a_probe_without_an_outcome() -> None:
    policy = opened()
    ask(policy, RESET_MS)
    later = RESET_MS + BREAKER_IDLE_MS
    assert ask(policy, later).reason is CIRCUIT_OPEN
    assert policy.sweep(later - 1).probes == 0
    assert policy.sweep(later).probes == 1
    assert policy.circuit_state("target-1", later)[0] is HALF_OPEN
    assert [ask(policy, later).allowed for _ in range(3)] == [True, False, False]
