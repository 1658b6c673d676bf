"""Leases: until when a consumer may keep a message."""

from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.leases import agent_deadline_us, extended_until_us

TIMEOUT = 30_000_000
times = st.integers(0, 1 << 50)


def test_an_extension_counts_from_now() -> None:
    assert extended_until_us(130, 100, TIMEOUT, 8) == 100 + TIMEOUT


def test_an_extension_never_shortens_a_lease() -> None:
    assert extended_until_us(500, 100, 200, TIMEOUT) == 500


def test_an_extension_moves_the_end_by_a_quarter_of_the_timeout_at_least() -> None:
    assert extended_until_us(500, 100, 401, 40) == 510


@given(times, times, st.lists(st.tuples(times, times), max_size=50))
def test_extensions_within_one_timeout_are_journaled_a_few_times(
    begin: int, timeout: int, wishes: list[tuple[int, int]]
) -> None:
    until, journaled = begin + timeout, 0
    for waited, extension in wishes:
        now = begin + waited % (timeout + 1)
        extended = extended_until_us(until, now, min(extension, timeout), timeout)
        assert extended >= max(until, now + min(extension, timeout))
        journaled += extended != until
        until = extended
    assert journaled <= 5 or timeout < 4


def test_an_agent_is_stuck_one_timeout_after_its_last_sign_of_life() -> None:
    assert agent_deadline_us(100, TIMEOUT, 0) == 100 + TIMEOUT


def test_an_extended_lease_keeps_an_agent_from_being_stuck() -> None:
    assert agent_deadline_us(100, 50, 1000) == 1000
