"""Redelivery: at once, then later and later, and not endlessly."""

from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.redelivery import (
    RedeliveryConfig,
    RedeliveryVerdict,
    decide_redelivery,
    mailbox_pause_ms,
)

ENDLESS = RedeliveryConfig(max_deliveries=0)
IDS = st.text(max_size=64)
COUNTS = st.integers(1, 10_000)


def delays(config: RedeliveryConfig, count: int, message_id: str = "m") -> list[int]:
    """Return the delays after the first `count` failed deliveries."""
    return [decide_redelivery(message_id, n, config).delay_ms for n in range(1, count + 1)]


def test_the_first_redelivery_is_immediate_and_later_ones_wait_twice_as_long() -> None:
    first, second, third, fourth = delays(RedeliveryConfig(), 4)
    assert first == 0
    assert 750 <= second <= 1000
    assert [round(third / second, 1), round(fourth / third, 1)] == [2.0, 2.0]


def test_after_the_last_delivery_the_message_is_a_dead_letter() -> None:
    verdicts = [decide_redelivery("m", n, RedeliveryConfig()) for n in range(1, 7)]
    assert [one.reason for one in verdicts] == [
        None,
        None,
        None,
        None,
        "max deliveries exceeded (5/5)",
        "max deliveries exceeded (6/5)",
    ]


@given(IDS, COUNTS)
def test_without_an_end_delays_grow_up_to_their_maximum(message_id: str, count: int) -> None:
    before, after = delays(ENDLESS, count, message_id)[-1], delays(ENDLESS, count + 1)[-1]
    assert before <= ENDLESS.max_delay_ms
    assert after >= 3 * min(2 * before, ENDLESS.max_delay_ms) // 4 or count == 1
    assert delays(ENDLESS, 30, message_id)[-1] >= 3 * ENDLESS.max_delay_ms // 4


@given(IDS, COUNTS)
def test_the_same_message_gets_the_same_delay(message_id: str, count: int) -> None:
    assert decide_redelivery(message_id, count, ENDLESS) == decide_redelivery(
        message_id, count, ENDLESS
    )


def test_messages_that_fail_together_do_not_return_together() -> None:
    found = {decide_redelivery(f"m-{n}", 3, ENDLESS).delay_ms for n in range(100)}
    assert len(found) > 50


def test_the_largest_settings_overflow_nothing() -> None:
    config = RedeliveryConfig(max_deliveries=0, first_delay_ms=2**53, max_delay_ms=2**53)
    assert decide_redelivery("m", 2**53, config).delay_ms <= 2**53
    assert decide_redelivery("m", 1, config) == RedeliveryVerdict()


def test_a_mailbox_pauses_after_many_releases_and_for_a_growing_time() -> None:
    assert [mailbox_pause_ms(count) for count in (1, 1024)] == [0, 0]
    assert [mailbox_pause_ms(count) for count in (1025, 1281, 1537)] == [100, 200, 400]
    assert mailbox_pause_ms(10**9) == 300_000
