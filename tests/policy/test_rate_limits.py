"""Rate limits: a sliding window per sender, and the limit that applies to it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.admission import admit_sender
from waypost.policy.rate_limits import (
    RateLimitConfig,
    RateLimitResult,
    RateWindows,
    check_rate_limit,
    resolve_limit,
)
from waypost.policy.settings import Settings

STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 400)), min_size=1, max_size=60
)


def config_of(limit: int = 100, **fields: Any) -> RateLimitConfig:
    return RateLimitConfig(max_per_window=limit, **fields)


# --- One check -----------------------------------------------------------------------------------


def test_a_sender_below_the_limit_may_send() -> None:
    assert check_rate_limit("agent.a", 99, config_of(100)).allowed


@pytest.mark.parametrize("count", [100, 101, 5000])
def test_a_sender_at_or_above_the_limit_may_not(count: int) -> None:
    assert not check_rate_limit("agent.a", count, config_of(100)).allowed


def test_with_limits_off_any_count_passes_without_counters() -> None:
    off = config_of(1, enabled=False)
    assert check_rate_limit("agent.a", 1_000_000, off) == RateLimitResult(True)


@pytest.mark.parametrize("count", [3, 8])
def test_the_result_has_the_count_and_the_limit(count: int) -> None:
    result = check_rate_limit("agent.a", count, config_of(8))
    assert (result.current_count, result.limit) == (count, 8)


def test_a_rejection_has_the_count_and_the_window() -> None:
    result = check_rate_limit("agent.a", 12, config_of(10, window_secs=30))
    assert result.reason == "rate limit exceeded: 12/10 messages in 30s window"


def test_an_allowed_result_has_no_reason() -> None:
    assert check_rate_limit("agent.a", 0, config_of()).reason is None


def test_the_defaults_are_one_hundred_in_a_minute() -> None:
    config = RateLimitConfig()
    assert (config.enabled, config.window_secs, config.max_per_window) == (True, 60, 100)
    assert config.per_sender_overrides == {}


def test_an_override_decides_instead_of_the_general_limit() -> None:
    config = config_of(100, per_sender_overrides={"agent.loud": 2})
    assert not check_rate_limit("agent.loud", 2, config).allowed
    assert check_rate_limit("agent.quiet", 2, config).allowed


# --- Which limit applies -------------------------------------------------------------------------


def test_without_overrides_the_general_limit_applies() -> None:
    assert resolve_limit("agent.a", config_of(7)) == 7


def test_an_override_applies_to_the_sender_it_names() -> None:
    assert resolve_limit("agent.a", config_of(7, per_sender_overrides={"agent.a": 3})) == 3


def test_an_override_applies_to_every_sender_it_is_a_prefix_of() -> None:
    assert resolve_limit("agent.a.b", config_of(7, per_sender_overrides={"agent.a": 3})) == 3


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_prefixes_the_longest_applies(order: int) -> None:
    overrides = {"agent": 1, "agent.a.b": 3, "agent.a": 2}
    reordered = dict(list(overrides.items())[::order])
    assert resolve_limit("agent.a.b.c", config_of(7, per_sender_overrides=reordered)) == 3


def test_where_no_prefix_fits_the_general_limit_applies() -> None:
    config = config_of(7, per_sender_overrides={"agent.b": 3, "gent.a": 4, "agent.a.b": 5})
    assert resolve_limit("agent.a", config) == 7


def test_an_override_may_be_above_the_general_limit() -> None:
    assert resolve_limit("agent.a", config_of(7, per_sender_overrides={"agent": 900})) == 900


@given(
    st.text("ab.", min_size=1, max_size=6),
    st.dictionaries(st.text("ab.", min_size=1, max_size=6), st.integers(1, 9), max_size=6),
)
def test_the_limit_is_that_of_the_longest_prefix(sender: str, overrides: dict[str, int]) -> None:
    prefixes = [sender[:length] for length in range(len(sender), 0, -1)]
    expected = next((overrides[prefix] for prefix in prefixes if prefix in overrides), 50)
    assert resolve_limit(sender, config_of(50, per_sender_overrides=overrides)) == expected


# --- The windows ---------------------------------------------------------------------------------


def test_a_sender_never_seen_has_an_empty_window() -> None:
    assert RateWindows().count("agent.a", 0, 1000) == 0


def test_a_publish_counts_until_its_age_is_the_window() -> None:
    windows = RateWindows()
    windows.record("agent.a", 5000)
    assert windows.count("agent.a", 5000, 1000) == 1
    assert windows.count("agent.a", 5999, 1000) == 1
    assert windows.count("agent.a", 6000, 1000) == 0


def test_publishes_of_one_instant_all_count() -> None:
    windows = RateWindows()
    for _ in range(3):
        windows.record("agent.a", 5)
    assert windows.count("agent.a", 5, 10) == 3


def test_senders_have_windows_of_their_own() -> None:
    windows = RateWindows()
    windows.record("agent.a", 5)
    assert windows.count("agent.b", 5, 10) == 0


def test_asking_does_not_count() -> None:
    windows = RateWindows()
    windows.count("agent.a", 5, 10)
    assert windows.count("agent.a", 5, 10) == 0
    assert len(windows) == 0


def test_below_the_limit_there_is_no_retry_time() -> None:
    windows = RateWindows()
    windows.record("agent.a", 5)
    assert windows.retry_after_ms("agent.a", 6, 1000, limit=2) == 0
    assert windows.retry_after_ms("agent.b", 6, 1000, limit=1) == 0


def test_at_the_limit_the_oldest_that_counts_must_leave_first() -> None:
    windows = RateWindows()
    for at in (100, 400, 700):
        windows.record("agent.a", at)
    assert windows.retry_after_ms("agent.a", 800, 1000, limit=3) == 300
    assert windows.retry_after_ms("agent.a", 800, 1000, limit=1) == 900


def test_a_wait_that_has_ended_is_not_negative() -> None:
    windows = RateWindows()
    windows.record("agent.a", 5)
    assert windows.retry_after_ms("agent.a", 9000, 1000, limit=1) == 0


def test_sweeping_forgets_only_senders_with_an_empty_window() -> None:
    windows = RateWindows()
    windows.record("idle", 0)
    windows.record("busy", 0)
    windows.record("busy", 1)
    assert windows.sweep(1000, 1000) == 1
    assert len(windows) == 1
    assert windows.count("busy", 1000, 1000) == 1


def test_sweeping_drops_old_publishes_even_if_limits_are_off() -> None:
    windows = RateWindows()
    for at in range(10_000):
        windows.record("agent.a", at)
        if at % 100 == 0:
            windows.sweep(at, 10)
    assert len(windows._sent["agent.a"]) < 400


def test_clearing_forgets_every_sender() -> None:
    windows = RateWindows()
    windows.record("agent.a", 5)
    windows.clear()
    assert windows.count("agent.a", 5, 10) == len(windows) == 0


def test_a_snapshot_has_the_publishes_that_still_count() -> None:
    windows = RateWindows()
    windows.record("idle", 0)
    windows.record("busy", 0)
    windows.record("busy", 1)
    assert windows.snapshot(1000, 1000) == {"busy": [1]}


def test_a_snapshot_is_a_copy() -> None:
    windows = RateWindows()
    windows.record("agent.a", 5)
    windows.snapshot(5, 10)["agent.a"].clear()
    assert windows.count("agent.a", 5, 10) == 1


def test_memory_does_not_grow_over_a_long_run() -> None:
    windows = RateWindows()
    for at in range(10_000):
        windows.count("agent.a", at, 10)
        windows.record("agent.a", at)
    assert len(windows._sent["agent.a"]) < 200


# --- Under any sequence --------------------------------------------------------------------------


@given(STEPS, st.integers(1, 1000))
def test_counts_agree_with_a_recount_of_everything_sent(
    steps: list[tuple[str, int]], window_ms: int
) -> None:
    windows, sent, now = RateWindows(), [], 0
    for sender, pause in steps:
        now += pause
        expected = sum(1 for who, at in sent if who == sender and now - at < window_ms)
        assert windows.count(sender, now, window_ms) == expected
        windows.record(sender, now)
        sent.append((sender, now))


@given(st.integers(65, 200), st.integers(0, 150), st.integers(1, 300))
def test_counts_survive_the_pruning_of_old_instants(burst: int, later: int, window_ms: int) -> None:
    windows = RateWindows()
    instants = [*range(burst), *range(burst + 50, burst + 50 + later)]
    for at in instants:
        windows.record("agent.a", at)
    for now in range(instants[-1], instants[-1] + window_ms + 1, 7):
        assert windows.count("agent.a", now, window_ms) == sum(
            1 for at in instants if now - at < window_ms
        )


@given(STEPS, st.integers(1, 5))
def test_no_sequence_of_publishes_gets_more_through_than_the_limit(
    steps: list[tuple[str, int]], limit: int
) -> None:
    settings = Settings(rate_limit=config_of(limit, window_secs=1))
    windows, passed, now = RateWindows(), [], 0
    for sender, pause in steps:
        now += pause
        recent = sum(1 for who, at in passed if who == sender and now - at < 1000)
        verdict = admit_sender(sender, windows, settings, now)
        assert (verdict.reason is None) == (recent < limit)
        assert (verdict.count, verdict.limit) == (recent, limit)
        if verdict.reason is None:
            windows.record(sender, now)
            passed.append((sender, now))


@given(STEPS, st.integers(1, 5))
def test_the_wait_is_exact_not_a_millisecond_more_or_less(
    steps: list[tuple[str, int]], limit: int
) -> None:
    settings = Settings(rate_limit=config_of(limit, window_secs=1))
    windows, now = RateWindows(), 0
    for sender, pause in steps:
        now += pause
        wait_ms = admit_sender(sender, windows, settings, now).retry_after_ms
        if wait_ms == 0:
            windows.record(sender, now)
        else:
            assert admit_sender(sender, windows, settings, now + wait_ms - 1).reason is not None
            assert admit_sender(sender, windows, settings, now + wait_ms).reason is None
