"""Backoff: delays between connection attempts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.session_harness import NOW_MS, SessionHarness
from waypost.client import ClientOptions, Identity
from waypost.client.connection import RelayConnection
from waypost.client.message import Message
from waypost.client.protocol.backoff import (
    BACKOFF_MAX_MS,
    BACKOFF_RESET_MS,
    NODES_BACKOFF_MAX_MS,
    Backoff,
)
from waypost.client.route import Route
from waypost.client.seal_memory import SealMemory
from waypost.wire import frames


def test_delays_double_up_to_half_a_minute() -> None:
    backoff = Backoff(lambda: 0.999_999_9)
    delays = [round(backoff.delay_ms(0), -2) for _ in range(12)]
    assert delays == [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000, 30000]


def test_with_several_nodes_delays_stay_within_seconds() -> None:
    backoff = Backoff(lambda: 0.999_999_9, NODES_BACKOFF_MAX_MS)
    delays = [round(backoff.delay_ms(0), -2) for _ in range(9)]
    assert delays == [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]


def no_message(frame: frames.Message) -> Message:
    raise AssertionError("nothing is delivered")


@pytest.mark.parametrize(
    ("urls", "delays_max_ms"), [("ws://a", BACKOFF_MAX_MS), ("ws://a,ws://b", NODES_BACKOFF_MAX_MS)]
)
def test_a_connection_expects_several_nodes_if_it_was_given_them(
    urls: str, delays_max_ms: int
) -> None:
    route, identity = Route.parse(urls), Identity.new("agent.a")
    connection = RelayConnection(route, identity, ClientOptions(), SealMemory(None), no_message)
    delays = [connection.session.disconnected(NOW_MS, 1006) for _ in range(20)]
    assert delays_max_ms / 2 <= max(delays) <= delays_max_ms


def test_half_of_a_delay_is_random() -> None:
    low, high = Backoff(lambda: 0.0), Backoff(lambda: 0.5)
    for _ in range(4):
        low.delay_ms(0)
        high.delay_ms(0)
    assert (low.delay_ms(0), high.delay_ms(0)) == (800, 1200)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.floats(0, 1, exclude_max=True))))
def test_a_delay_is_between_a_tenth_of_a_second_and_thirty_seconds(
    ends: list[tuple[int, float]],
) -> None:
    randoms = iter([random for _, random in ends])
    backoff = Backoff(lambda: next(randoms))
    for connected_ms, _ in ends:
        assert 100 <= backoff.delay_ms(connected_ms) <= 30_000


def test_attempts_continue_every_half_minute_for_days() -> None:
    backoff = Backoff(lambda: 0.0)
    assert [backoff.delay_ms(0) for _ in range(10_000)][-1] == 15_000


def test_a_long_connection_resets_the_delay() -> None:
    harness = SessionHarness()
    for _ in range(6):
        harness.drop()
    harness.connect()
    assert harness.drop(after_ms=BACKOFF_RESET_MS) == 100


def test_a_short_connection_does_not_reset_the_delay() -> None:
    harness = SessionHarness()
    for _ in range(6):
        harness.drop()
    harness.connect()
    assert harness.drop(after_ms=BACKOFF_RESET_MS - 1) == 3200


def test_a_clock_that_was_set_back_is_harmless() -> None:
    harness = SessionHarness()
    harness.connect()
    assert harness.session.disconnected(NOW_MS - 1_000_000, 1006) == 100
