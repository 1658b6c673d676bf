"""Tiers and quotas: last contacts, and the share of an inbox they allow."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.settings import Settings, lint, merge_settings, to_config_document
from waypost.policy.tiers import (
    QUOTA_EXCEEDED_TEXT,
    UNLIMITED,
    WEEK_MS,
    QosConfig,
    Tier,
    TierLimits,
    tier_of,
    within_quota,
)

NOW = 1_700_000_000_000
WINDOW = WEEK_MS
EDGE = NOW - WINDOW
OFF = 18446744073709551615
"""The specification's largest number, which switches a limit off."""
INSTANTS = st.none() | st.integers(EDGE - 3, EDGE + 3) | st.just(NOW)


def test_a_sender_never_answered_is_unknown() -> None:
    assert tier_of(NOW, None, NOW, WINDOW) is Tier.UNKNOWN
    assert tier_of(None, None, NOW, WINDOW) is Tier.UNKNOWN


def test_a_sender_that_was_written_to_is_acknowledged_at_any_age() -> None:
    assert tier_of(None, 0, NOW, WINDOW) is Tier.ACKNOWLEDGED
    assert tier_of(NOW, 0, NOW, WINDOW) is Tier.ACKNOWLEDGED


def test_a_sender_that_never_wrote_is_not_active_however_new_the_reply() -> None:
    assert tier_of(None, NOW, NOW, WINDOW) is Tier.ACKNOWLEDGED


def test_both_directions_within_the_window_are_active() -> None:
    assert tier_of(NOW - 5, NOW - 9, NOW, WINDOW) is Tier.ACTIVE


def test_an_age_equal_to_the_window_still_counts() -> None:
    assert tier_of(EDGE, EDGE, NOW, WINDOW) is Tier.ACTIVE


@pytest.mark.parametrize(("sent", "received"), [(EDGE - 1, NOW), (NOW, EDGE - 1)])
def test_a_millisecond_past_the_window_on_either_side_is_too_old(sent: int, received: int) -> None:
    assert tier_of(sent, received, NOW, WINDOW) is Tier.ACKNOWLEDGED


@given(INSTANTS, INSTANTS)
def test_the_tier_agrees_with_its_definition(sent: int | None, received: int | None) -> None:
    def is_recent(at: int | None) -> bool:
        return at is not None and NOW - at <= WINDOW

    expected = 1 + (received is not None) + (is_recent(sent) and is_recent(received))
    assert tier_of(sent, received, NOW, WINDOW) == expected


@given(st.integers(EDGE - 3, EDGE + 3), st.integers(EDGE - 3, EDGE + 3))
def test_being_active_is_mutual(one: int, other: int) -> None:
    assert tier_of(one, other, NOW, WINDOW) == tier_of(other, one, NOW, WINDOW)


@given(INSTANTS, INSTANTS, st.integers(0, 10))
def test_waiting_never_raises_a_tier(sent: int | None, received: int | None, wait_ms: int) -> None:
    later = tier_of(sent, received, NOW + wait_ms, WINDOW)
    assert later <= tier_of(sent, received, NOW, WINDOW)


# --- Quotas --------------------------------------------------------------------------------------


def test_one_envelope_short_of_the_limit_one_more_fits() -> None:
    limits = TierLimits(max_envelopes=20, max_bytes=1000)
    assert within_quota(19, 0, 1, limits)
    assert not within_quota(20, 0, 1, limits)


def test_bytes_may_reach_the_limit_exactly() -> None:
    limits = TierLimits(max_envelopes=20, max_bytes=1000)
    assert within_quota(1, 900, 100, limits)
    assert not within_quota(1, 900, 101, limits)


def test_one_envelope_larger_than_the_limit_never_fits() -> None:
    assert not within_quota(0, 0, 1001, TierLimits(max_envelopes=20, max_bytes=1000))


def test_limits_of_zero_take_nothing() -> None:
    assert not within_quota(0, 0, 0, TierLimits(max_envelopes=0, max_bytes=1000))
    assert not within_quota(0, 0, 1, TierLimits(max_envelopes=20, max_bytes=0))


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(0, 10), st.integers(0, 1000))
def test_no_sequence_of_messages_fills_more_than_the_quota(
    sizes: list[int], max_envelopes: int, max_bytes: int
) -> None:
    limits = TierLimits(max_envelopes, max_bytes)
    stored: list[int] = []
    for size in sizes:
        if within_quota(len(stored), sum(stored), size, limits):
            stored.append(size)
    assert len(stored) <= max_envelopes
    assert sum(stored) <= max_bytes


# --- Configuration -------------------------------------------------------------------------------


def test_quotas_are_off_unless_asked_for() -> None:
    assert not QosConfig().enabled


def test_the_default_limits_grow_with_the_tier() -> None:
    qos = QosConfig()
    assert qos.limits(Tier.UNKNOWN) == TierLimits(20, 256 * 1024)
    assert qos.limits(Tier.ACKNOWLEDGED) == TierLimits(100, 2 * 1024 * 1024)
    assert qos.limits(Tier.ACTIVE) == TierLimits(500, 10 * 1024 * 1024)


def test_the_default_window_is_seven_days() -> None:
    assert QosConfig().bidirectional_window_ms == 604_800_000


def test_a_full_inbox_evicts_unless_asked_to_reject() -> None:
    assert QosConfig().overflow == "evict_least_known"


def test_strangers_have_no_common_share_unless_asked_for() -> None:
    assert QosConfig().strangers is None


def test_each_tier_has_its_own_limits() -> None:
    first, second, third = (TierLimits(n, n) for n in (1, 2, 3))
    qos = QosConfig(tier1=first, tier2=second, tier3=third)
    assert [qos.limits(tier) for tier in Tier] == [first, second, third]


def test_the_text_of_a_quota_rejection_is_fixed() -> None:
    assert QUOTA_EXCEEDED_TEXT == "sender quota exceeded for this inbox"


# --- Limits that are switched off ----------------------------------------------------------------


def qos_of(document: object) -> QosConfig:
    return merge_settings(Settings(), msgspec.json.encode(document)).qos


def test_a_limit_of_the_largest_number_is_unlimited_and_any_json_parser_reads_it() -> None:
    unlimited = TierLimits(UNLIMITED, UNLIMITED)
    off = {"maxEnvelopes": OFF, "maxBytes": OFF}
    names = ("tier1", "tier2", "tier3", "strangers")
    from_file = qos_of({"qos": dict.fromkeys(names, off)})
    assert TierLimits(OFF, OFF) == unlimited
    assert [getattr(from_file, name) for name in names] == [unlimited] * 4
    assert from_file == qos_of(to_config_document(Settings(qos=from_file)))
    assert int(float(UNLIMITED)) == UNLIMITED


def test_unlimited_tiers_cause_no_warning() -> None:
    unlimited = TierLimits(OFF, OFF)
    qos = QosConfig(
        enabled=True, tier1=unlimited, tier2=unlimited, tier3=unlimited, strangers=unlimited
    )
    assert lint(Settings(qos=qos)) == []


def test_an_unlimited_stranger_next_to_a_limited_friend_causes_a_warning() -> None:
    qos = QosConfig(enabled=True, tier1=TierLimits(OFF, 1))
    fewer = "qos: a better known sender may store fewer envelopes than an unknown one"
    assert lint(Settings(qos=qos)) == [fewer]
