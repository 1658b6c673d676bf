"""The messaging guard for applications: clock, log, counters, threads and timer."""

import gc
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

import waypost
from waypost.client import guard as guard_module
from waypost.client.guard import MessagingGuard
from waypost.policy.breakers import CircuitState
from waypost.policy.guard import (
    SWEEP_INTERVAL_MS,
    GuardRejectionReason,
    GuardResult,
    MessagingGuardConfig,
    Swept,
    load_messaging_guard_config,
)
from waypost.testing import ManualClock

RESET_MS = 30_000
WINDOW_MS = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def guard(clock: ManualClock) -> Iterator[MessagingGuard]:
    guard = MessagingGuard(clock=clock)
    yield guard
    guard.stop()


def fail(guard: MessagingGuard, times: int = 5, target: str = "target-1") -> None:
    for _ in range(times):
        guard.record_failure(target)


# --- A call from beginning to end ----------------------------------------------------------------


def test_a_new_guard_allows_a_call(guard: MessagingGuard) -> None:
    assert guard.check("sender-1", "target-1") == GuardResult(True, None, None)


def test_five_failures_open_the_circuit_for_every_sender(guard: MessagingGuard) -> None:
    fail(guard, 5)
    rejected = GuardResult(False, GuardRejectionReason.CIRCUIT_OPEN, RESET_MS)
    assert guard.check("any-sender", "target-1") == rejected
    assert guard.get_circuit_state("target-1") is CircuitState.OPEN


def test_time_half_opens_and_successful_calls_close_the_circuit(
    guard: MessagingGuard, clock: ManualClock
) -> None:
    fail(guard)
    clock.advance_ms(RESET_MS)
    assert guard.get_circuit_state("target-1") is CircuitState.HALF_OPEN
    for sender in ("sender-1", "sender-2"):
        assert guard.check(sender, "target-1").allowed
        guard.record_success("target-1")
    assert guard.get_circuit_state("target-1") is CircuitState.CLOSED


def test_a_failed_probe_opens_the_circuit_again(guard: MessagingGuard, clock: ManualClock) -> None:
    fail(guard)
    clock.advance_ms(RESET_MS)
    guard.check("sender-1", "target-1")
    guard.record_failure("target-1")
    assert guard.get_circuit_state("target-1") is CircuitState.OPEN


def test_the_eleventh_message_in_a_minute_is_rejected(
    guard: MessagingGuard, clock: ManualClock
) -> None:
    assert all(guard.check("sender-1", "target-1").allowed for _ in range(10))
    rejected = guard.check("sender-1", "target-1")
    assert rejected == GuardResult(False, GuardRejectionReason.RATE_LIMITED, WINDOW_MS)
    clock.advance_ms(WINDOW_MS)
    assert guard.check("sender-1", "target-1").allowed


def test_reasons_and_states_are_strings(guard: MessagingGuard) -> None:
    fail(guard)
    assert guard.check("sender-1", "target-1").reason == "CIRCUIT_OPEN"
    assert guard.get_circuit_state("target-1") == "OPEN"


def test_an_unknown_agent_has_a_closed_circuit(guard: MessagingGuard) -> None:
    assert guard.get_circuit_state("unknown") is CircuitState.CLOSED
    guard.reset_circuit("unknown")
    guard.record_success("unknown")
    assert guard.get_circuit_state("unknown") is CircuitState.CLOSED


def test_a_circuit_can_be_reset_by_hand(guard: MessagingGuard) -> None:
    fail(guard)
    guard.reset_circuit("target-1")
    assert guard.check("sender-1", "target-1").allowed


def test_reset_all_closes_circuits_and_clears_windows(guard: MessagingGuard) -> None:
    fail(guard)
    for _ in range(10):
        guard.check("sender-1", "target-2")
    guard.reset_all()
    assert guard.check("sender-1", "target-1").allowed


def test_a_guard_uses_its_config(clock: ManualClock) -> None:
    config = load_messaging_guard_config({"AGENT_CB_FAILURE_THRESHOLD": "1"})
    guard = MessagingGuard(config, clock=clock)
    guard.record_failure("target-1")
    assert guard.get_circuit_state("target-1") is CircuitState.OPEN
    guard.stop()


def test_a_guard_without_a_clock_uses_the_system_clock() -> None:
    guard = MessagingGuard()
    fail(guard)
    wait_ms = guard.check("sender-1", "target-1").retry_after_ms
    assert wait_ms is not None
    assert 0 < wait_ms <= RESET_MS
    guard.stop()


def test_a_clock_that_goes_back_does_not_prolong_anything() -> None:
    now_us = [50_000_000]
    guard = MessagingGuard(MessagingGuardConfig(rate_limit_per_window=1), clock=lambda: now_us[0])
    guard.check("sender-1", "target-1")
    now_us[0] = 0
    assert guard.check("sender-1", "target-1").retry_after_ms == WINDOW_MS
    now_us[0] = 50_000_000 + WINDOW_MS * 1000
    assert guard.check("sender-1", "target-1").allowed
    guard.stop()


# --- Log and counters ----------------------------------------------------------------------------


def test_every_change_of_state_is_logged_with_the_agent(
    guard: MessagingGuard, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="waypost.guard"):
        fail(guard)
        clock.advance_ms(RESET_MS)
        for _ in range(2):
            guard.check("sender-1", "target-1")
            guard.record_success("target-1")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "circuit to target-1: CLOSED -> OPEN (failure_threshold consecutive failures)",
        ),
        ("INFO", "circuit to target-1: OPEN -> HALF_OPEN (cooldown_ms elapsed)"),
        (
            "INFO",
            "circuit to target-1: HALF_OPEN -> CLOSED (success_to_close consecutive successes)",
        ),
    ]
    assert guard.counters()["circuit_breaker_transitions"] == 3


def test_a_reset_by_hand_is_a_change_of_state(
    guard: MessagingGuard, caplog: pytest.LogCaptureFixture
) -> None:
    for target in ("target-1", "target-2"):
        fail(guard, target=target)
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="waypost.guard"):
        guard.reset_circuit("target-1")
        guard.reset_all()
    assert [record.getMessage() for record in caplog.records] == [
        "circuit to target-1: OPEN -> CLOSED (reset by hand)",
        "circuit to target-2: OPEN -> CLOSED (reset by hand)",
    ]
    assert guard.counters()["circuit_breaker_transitions"] == 4


def test_a_state_change_found_by_a_query_is_logged_once(
    guard: MessagingGuard, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    fail(guard)
    clock.advance_ms(RESET_MS)
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="waypost.guard"):
        guard.get_circuit_state("target-1")
        guard.get_circuit_state("target-1")
        guard.check("sender-1", "target-1")
    assert len(caplog.records) == 1


def test_calls_without_a_state_change_are_not_logged(
    guard: MessagingGuard, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="waypost.guard"):
        guard.check("sender-1", "target-1")
        guard.record_success("target-1")
        fail(guard, 4)
        guard.reset_circuit("target-1")
        guard.sweep()
    assert not caplog.records


def test_rejections_are_counted_by_their_reason(guard: MessagingGuard) -> None:
    fail(guard)
    for _ in range(2):
        guard.check("sender-1", "target-1")
    for _ in range(13):
        guard.check("sender-1", "target-2")
    assert guard.counters() == {
        "circuit_breaker_transitions": 1,
        "circuit_open_rejections": 2,
        "agent_rate_limit_rejections": 3,
    }


def test_the_counters_of_a_new_guard_are_zero(guard: MessagingGuard) -> None:
    assert set(guard.counters().values()) == {0}


def test_the_returned_counters_are_a_copy(guard: MessagingGuard) -> None:
    guard.counters()["circuit_breaker_transitions"] = 99
    assert guard.counters()["circuit_breaker_transitions"] == 0


# --- Threads -------------------------------------------------------------------------------------


def test_many_threads_together_stay_within_the_limit(clock: ManualClock) -> None:
    guard = MessagingGuard(MessagingGuardConfig(rate_limit_per_window=50), clock=clock)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: guard.check("sender-1", "target-1"), range(400)))
    assert sum(result.allowed for result in results) == 50
    assert guard.counters()["agent_rate_limit_rejections"] == 350
    guard.stop()


def test_only_one_of_many_threads_gets_the_probe(guard: MessagingGuard, clock: ManualClock) -> None:
    fail(guard)
    clock.advance_ms(RESET_MS)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda n: guard.check(f"sender-{n}", "target-1"), range(100)))
    assert sum(result.allowed for result in results) == 1


def test_a_log_handler_may_use_the_guard(guard: MessagingGuard) -> None:
    seen = []

    class Asking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(guard.get_circuit_state("target-1"))

    handler = Asking()
    logging.getLogger("waypost.guard").addHandler(handler)
    try:
        worker = threading.Thread(target=fail, args=(guard,), daemon=True)
        worker.start()
        worker.join(timeout=60)
    finally:
        logging.getLogger("waypost.guard").removeHandler(handler)
    assert seen == [CircuitState.OPEN]


# --- The sweep and its timer ---------------------------------------------------------------------


def test_the_sweep_drops_idle_senders_and_closed_idle_circuits(
    guard: MessagingGuard, clock: ManualClock
) -> None:
    guard.check("idle", "target-1")
    fail(guard, 4)
    clock.advance_ms(SWEEP_INTERVAL_MS)
    guard.check("busy", "target-2")
    fail(guard, 1, target="target-2")
    assert guard.sweep() == Swept(senders=1, circuits=1)
    assert guard.sweep() == Swept(senders=0, circuits=0)


class ScriptedLock:
    """A stand-in for the lock of the timer: returns the given answers and records the timeouts."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.waited_s: list[float] = []

    def acquire(self, timeout: float) -> bool:
        self.waited_s.append(timeout)
        return self.answers.pop(0)


def test_the_timer_sweeps_every_five_minutes_until_it_is_stopped(
    guard: MessagingGuard, clock: ManualClock
) -> None:
    guard.check("idle", "target-1")
    clock.advance_ms(WINDOW_MS)
    running = ScriptedLock(False, False, True)
    guard_module._sweep_until_released(weakref.ref(guard), cast(threading.Lock, running))
    assert running.waited_s == [300.0, 300.0, 300.0]
    assert guard.sweep().senders == 0


def test_the_timer_ends_when_the_guard_is_gone() -> None:
    guard, running = MessagingGuard(), ScriptedLock(False, False)
    gone = weakref.ref(guard)
    del guard
    gc.collect()
    guard_module._sweep_until_released(gone, cast(threading.Lock, running))
    assert running.answers == [False]


def test_between_two_sweeps_the_timer_holds_no_reference_to_the_guard(clock: ManualClock) -> None:
    held = [MessagingGuard(clock=clock)]
    watcher = weakref.ref(held[0])

    class DroppingLock(ScriptedLock):
        def acquire(self, timeout: float) -> bool:
            if self.waited_s:
                held.clear()
                gc.collect()
            return super().acquire(timeout)

    running = DroppingLock(False, False)
    guard_module._sweep_until_released(watcher, cast(threading.Lock, running))
    assert watcher() is None


def test_stop_ends_the_timer_and_leaves_the_guard_working(clock: ManualClock) -> None:
    guard = MessagingGuard(clock=clock)
    assert guard._sweeper.is_alive()
    guard.stop()
    guard.stop()
    assert not guard._sweeper.is_alive()
    assert guard.check("sender-1", "target-1").allowed


def test_the_timer_does_not_keep_a_guard_alive(clock: ManualClock) -> None:
    guard = MessagingGuard(clock=clock)
    timer, watcher = guard._sweeper, weakref.ref(guard)
    del guard
    gc.collect()
    timer.join(timeout=60)
    assert watcher() is None
    assert not timer.is_alive()


@pytest.mark.process
def test_a_live_guard_does_not_keep_the_process_alive() -> None:
    program = (
        "from waypost.client.guard import MessagingGuard\n"
        "guard = MessagingGuard()\n"
        "assert guard.check('sender-1', 'target-1').allowed\n"
    )
    source = str(Path(waypost.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": source},
        timeout=60,
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
