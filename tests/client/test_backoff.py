"""How long a client waits before it connects again."""

from hypothesis import given
from hypothesis import strategies as st

from tests.client.session_harness import NOW_MS, Talk
from waypost.client.protocol.session import BACKOFF_RESET_MS, Backoff


def test_waits_double_up_to_half_a_minute() -> None:
    backoff = Backoff(lambda: 0.999_999_9)
    waits = [round(backoff.delay_ms(0), -2) for _ in range(12)]
    assert waits == [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000, 30000]


def test_half_of_a_wait_is_chance() -> None:
    low, high = Backoff(lambda: 0.0), Backoff(lambda: 0.5)
    for _ in range(4):
        low.delay_ms(0)
        high.delay_ms(0)
    assert (low.delay_ms(0), high.delay_ms(0)) == (800, 1200)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.floats(0, 1, exclude_max=True))))
def test_a_wait_is_never_shorter_than_a_tenth_nor_longer_than_thirty_seconds(
    ends: list[tuple[int, float]],
) -> None:
    chances = iter([chance for _, chance in ends])
    backoff = Backoff(lambda: next(chances))
    for connected_ms, _ in ends:
        assert 100 <= backoff.delay_ms(connected_ms) <= 30_000


def test_a_relay_away_for_days_is_still_asked_every_half_minute() -> None:
    backoff = Backoff(lambda: 0.0)
    assert [backoff.delay_ms(0) for _ in range(10_000)][-1] == 15_000


def test_a_good_connection_makes_the_next_wait_short() -> None:
    talk = Talk()
    for _ in range(6):
        talk.drop()
    talk.connect()
    assert talk.drop(after_ms=BACKOFF_RESET_MS) == 100


def test_a_connection_that_is_dropped_at_once_does_not() -> None:
    talk = Talk()
    for _ in range(6):
        talk.drop()
    talk.connect()
    assert talk.drop(after_ms=BACKOFF_RESET_MS - 1) == 3200


def test_a_clock_that_was_set_back_does_no_harm() -> None:
    talk = Talk()
    talk.connect()
    assert talk.session.disconnected(NOW_MS - 1_000_000, 1006) == 100
