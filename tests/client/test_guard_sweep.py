"""The sweep of the messaging guard: it never closes a circuit."""

import logging
from collections.abc import Iterator

import pytest

from waypost import CircuitState, MessagingGuard
from waypost.testing import ManualClock

SWEEP_INTERVAL_MS = 300_000


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


def test_after_the_sweep_an_open_circuit_still_allows_one_probe_only(
    guard: MessagingGuard, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    fail(guard)
    clock.advance_ms(SWEEP_INTERVAL_MS)
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="waypost.guard"):
        guard.sweep()
        callers = [guard.check(f"sender-{n}", "target-1").allowed for n in range(5)]
    assert callers == [True, False, False, False, False]
    assert [record.getMessage() for record in caplog.records] == [
        "circuit to target-1: OPEN -> HALF_OPEN (cooldown_ms elapsed)"
    ]
    assert guard.counters()["circuit_breaker_transitions"] == 2


def test_however_often_it_is_swept_an_open_circuit_closes_by_good_probes_only(
    guard: MessagingGuard, clock: ManualClock
) -> None:
    fail(guard)
    for _ in range(100):
        clock.advance_ms(SWEEP_INTERVAL_MS)
        assert guard.sweep().circuits == 0
        assert guard.get_circuit_state("target-1") is CircuitState.HALF_OPEN
    for _ in range(2):
        assert guard.check("sender-1", "target-1").allowed
        guard.record_success("target-1")
    assert guard.get_circuit_state("target-1") is CircuitState.CLOSED
    assert guard.counters()["circuit_breaker_transitions"] == 3
