"""Backpressure: how full a mailbox is, and when it accepts no more messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.backpressure import BackpressureConfig, check_backpressure

TEN = BackpressureConfig(max_mailbox_size=10)


@pytest.mark.parametrize("size", [0, 1, 9])
def test_a_mailbox_below_its_limit_takes_a_message(size: int) -> None:
    result = check_backpressure(size, TEN)
    assert (result.allowed, result.current_size, result.reason) == (True, size, None)


@pytest.mark.parametrize("size", [10, 11, 5000])
def test_a_mailbox_at_or_above_its_limit_takes_nothing(size: int) -> None:
    result = check_backpressure(size, TEN)
    assert (result.allowed, result.current_size) == (False, size)
    assert result.reason == f"backpressure: mailbox full ({size}/10)"


@pytest.mark.parametrize(("size", "pressure"), [(0, 0.0), (5, 0.5), (8, 0.8), (10, 1.0)])
def test_pressure_is_the_share_in_use(size: int, pressure: float) -> None:
    assert check_backpressure(size, TEN).pressure == pressure


def test_pressure_of_an_overfull_mailbox_is_one() -> None:
    assert check_backpressure(25, TEN).pressure == 1.0


def test_switched_off_any_size_passes_without_pressure() -> None:
    result = check_backpressure(5000, BackpressureConfig(enabled=False, max_mailbox_size=1))
    assert (result.allowed, result.current_size, result.pressure) == (True, 5000, 0.0)


def test_a_limit_of_zero_takes_nothing_and_divides_by_nothing() -> None:
    result = check_backpressure(0, BackpressureConfig(max_mailbox_size=0))
    assert (result.allowed, result.pressure) == (False, 0.0)


def test_the_defaults_are_a_thousand_messages_and_a_warning_at_four_fifths() -> None:
    config = BackpressureConfig()
    assert (config.enabled, config.max_mailbox_size, config.pressure_warning_at) == (
        True,
        1000,
        0.8,
    )


@given(st.integers(0, 300), st.integers(1, 200))
def test_pressure_is_one_exactly_when_nothing_more_is_taken(size: int, limit: int) -> None:
    result = check_backpressure(size, BackpressureConfig(max_mailbox_size=limit))
    assert 0.0 <= result.pressure <= 1.0
    assert result.allowed == (result.pressure < 1.0) == (size < limit)
