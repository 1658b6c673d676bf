"""Admission: the order of checks, and that a rejection keeps no probe slot."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.policy.admission import (
    INBOX_KEPT_TEXT,
    DeliveryVerdict,
    admit_delivery,
    admit_fan_out,
    admit_sender,
    make_room,
    may_use_patterns,
)
from waypost.policy.backpressure import BackpressureConfig
from waypost.policy.breakers import (
    CircuitBreakerConfig,
    CircuitBreakers,
    CircuitState,
    Occasion,
    Transition,
)
from waypost.policy.budgets import Budget, create_default_budget
from waypost.policy.occupancy import Occupancy
from waypost.policy.rate_limits import RateLimitConfig, RateWindows
from waypost.policy.reasons import DEAD_LETTERED, UNCOUNTED, Reason
from waypost.policy.settings import Settings
from waypost.policy.tiers import QosConfig, Tier, TierLimits

NOW = 1_700_000_000_000
COOLDOWN = 30_000
SIZE = 100

CHECKS = {
    "count cap": (Reason.BACKPRESSURE, "backpressure: mailbox full (3/3)"),
    "byte cap": (Reason.BACKPRESSURE, "backpressure: inbox bytes full (300/350)"),
    "quota": (Reason.QUOTA_EXCEEDED, "sender quota exceeded for this inbox"),
    "circuit": (Reason.CIRCUIT_OPEN, "circuit open for endpoint agent.in"),
    "budget": (Reason.BUDGET_EXCEEDED, "call budget exhausted"),
}
"""The checks in their order, with the reason and text of each."""


@dataclass
class Arriving:
    """An arrival."""

    id: str
    sender: str
    endpoint: str
    budget: Budget
    size: int
    tier: int
    answer: bool = False
    due_us: int = 0


def deliver(failing: set[str], breakers: CircuitBreakers | None = None) -> DeliveryVerdict:
    """Return the verdict on a delivery for which exactly the checks in `failing` fail."""
    mailbox = Occupancy()
    for _ in range(3):
        mailbox.add("agent.out", SIZE)
    settings = Settings(
        backpressure=BackpressureConfig(max_mailbox_size=3 if "count cap" in failing else 4),
        qos=QosConfig(
            enabled=True,
            tier1=TierLimits(3 if "quota" in failing else 4, 10_000),
            inbox_max_bytes=350 if "byte cap" in failing else 400,
            overflow="reject",
        ),
    )
    breakers = breakers or (opened_at(NOW) if "circuit" in failing else CircuitBreakers())
    calls = 0 if "budget" in failing else 1
    return admit_delivery(arrival(calls=calls), mailbox, breakers, settings, NOW)


def arrival(calls: int = 1, tier: Tier = Tier.UNKNOWN, size: int = SIZE) -> Arriving:
    budget = create_default_budget(NOW, call_budget_remaining=calls)
    return Arriving("m-1", "agent.out", "agent.in", budget, size, tier)


def opened_at(at_ms: int) -> CircuitBreakers:
    breakers = CircuitBreakers(CircuitBreakerConfig(failure_threshold=1, cooldown_ms=COOLDOWN))
    breakers.record_failure("agent.in", at_ms)
    return breakers


# --- Order ---------------------------------------------------------------------------------------


def test_a_delivery_that_passes_every_check_is_admitted() -> None:
    verdict = deliver(set())
    assert (verdict.reason, verdict.detail, verdict.retry_after_ms) == (None, "", 0)


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_that_fails_alone_is_reported(check: str) -> None:
    verdict = deliver({check})
    assert (verdict.reason, verdict.detail) == CHECKS[check]


@pytest.mark.parametrize(("earlier", "later"), list(combinations(CHECKS, 2)))
def test_of_two_checks_that_fail_the_earlier_is_reported(earlier: str, later: str) -> None:
    verdict = deliver({earlier, later})
    assert (verdict.reason, verdict.detail) == CHECKS[earlier]


@given(st.sets(st.sampled_from(list(CHECKS)), min_size=1))
def test_of_any_checks_that_fail_the_first_is_reported(failing: set[str]) -> None:
    first = next(check for check in CHECKS if check in failing)
    verdict = deliver(failing)
    assert (verdict.reason, verdict.detail) == CHECKS[first]


# --- The sender ----------------------------------------------------------------------------------


def limited_to(limit: int, **fields: Any) -> Settings:
    config = RateLimitConfig(max_per_window=limit, window_secs=10, **fields)
    return Settings(rate_limit=config)


def sent(*instants: int) -> RateWindows:
    windows = RateWindows()
    for at in instants:
        windows.record("agent.out", at)
    return windows


def test_a_sender_below_its_limit_passes_with_the_numbers_seen() -> None:
    verdict = admit_sender("agent.out", sent(NOW), limited_to(2), NOW)
    assert (verdict.reason, verdict.count, verdict.limit) == (None, 1, 2)
    assert (verdict.detail, verdict.retry_after_ms) == ("", 0)


def test_a_sender_at_its_limit_is_rejected_with_a_retry_time() -> None:
    verdict = admit_sender("agent.out", sent(NOW - 9000, NOW), limited_to(2), NOW)
    assert (verdict.reason, verdict.count, verdict.limit) == (Reason.RATE_LIMITED, 2, 2)
    assert verdict.detail == "rate limit exceeded: 2/2 messages in 10s window"
    assert verdict.retry_after_ms == 1000


def test_a_rejected_publish_does_not_extend_the_window() -> None:
    windows, settings = sent(NOW), limited_to(1)
    for wait_ms in (0, 5000, 9999):
        assert admit_sender("agent.out", windows, settings, NOW + wait_ms).reason is not None
    assert admit_sender("agent.out", windows, settings, NOW + 10_000).reason is None


def test_a_sender_is_judged_by_its_own_override() -> None:
    settings = limited_to(5, per_sender_overrides={"agent.out": 1})
    assert admit_sender("agent.out", sent(NOW), settings, NOW).limit == 1


def test_with_rate_limits_off_every_sender_passes() -> None:
    settings = limited_to(1, enabled=False)
    assert admit_sender("agent.out", sent(NOW, NOW), settings, NOW).reason is None


# --- Probes --------------------------------------------------------------------------------------


def test_a_delivery_through_a_half_open_circuit_is_a_probe() -> None:
    verdict = deliver(set(), opened_at(NOW - COOLDOWN))
    assert (verdict.reason, verdict.probe) == (None, True)
    assert verdict.breaker is CircuitState.HALF_OPEN
    assert verdict.transition == Transition(
        "agent.in", CircuitState.OPEN, CircuitState.HALF_OPEN, Occasion.COOLDOWN_ELAPSED
    )


def test_a_probe_that_the_budget_rejects_is_released() -> None:
    breakers = opened_at(NOW - COOLDOWN)
    verdict = deliver({"budget"}, breakers)
    assert (verdict.reason, verdict.probe) == (Reason.BUDGET_EXCEEDED, False)
    assert breakers.get_states()["agent.in"].probes_in_flight == 0
    assert deliver(set(), breakers).probe


def test_a_transition_is_reported_even_when_the_budget_rejects() -> None:
    assert deliver({"budget"}, opened_at(NOW - COOLDOWN)).transition is not None


@pytest.mark.parametrize("check", ["count cap", "byte cap", "quota"])
def test_a_delivery_rejected_before_the_circuit_does_not_touch_it(check: str) -> None:
    breakers = opened_at(NOW - COOLDOWN)
    before = breakers.get_states()
    verdict = deliver({check}, breakers)
    assert (verdict.probe, verdict.transition) == (False, None)
    assert breakers.get_states() == before


def test_a_rejection_by_an_open_circuit_has_a_retry_time() -> None:
    assert deliver({"circuit"}).retry_after_ms == COOLDOWN


def test_a_budget_rejection_does_not_count_as_a_failure_of_the_endpoint() -> None:
    breakers = CircuitBreakers(CircuitBreakerConfig(failure_threshold=1))
    deliver({"budget"}, breakers)
    assert len(breakers) == 0


# --- Quotas and bytes ----------------------------------------------------------------------------


def with_inbox(held: int, qos: QosConfig, **fields: Any) -> DeliveryVerdict:
    """Return the verdict on an arrival at a mailbox with another sender's `held` bytes."""
    mailbox = Occupancy()
    mailbox.add("agent.other", held)
    settings = Settings(qos=qos)
    return admit_delivery(arrival(**fields), mailbox, CircuitBreakers(), settings, NOW)


def test_the_quota_depends_on_the_tier() -> None:
    qos = QosConfig(enabled=True, tier1=TierLimits(0, 0), tier2=TierLimits(1, SIZE))
    assert with_inbox(5, qos, tier=Tier.UNKNOWN).reason is Reason.QUOTA_EXCEEDED
    assert with_inbox(5, qos, tier=Tier.ACKNOWLEDGED).reason is None


@pytest.mark.parametrize("tier", Tier)
def test_a_quota_rejection_has_the_same_text_in_every_tier(tier: Tier) -> None:
    none = TierLimits(0, 0)
    qos = QosConfig(enabled=True, tier1=none, tier2=none, tier3=none)
    verdict = with_inbox(5, qos, tier=tier)
    assert (verdict.reason, verdict.detail) == CHECKS["quota"]
    assert verdict.retry_after_ms == 0


def test_only_the_senders_own_messages_count_towards_its_quota() -> None:
    qos = QosConfig(enabled=True, tier1=TierLimits(1, SIZE))
    verdict = with_inbox(10_000, qos)
    assert (verdict.reason, verdict.quota_count, verdict.quota_bytes) == (None, 0, 0)


def test_bytes_may_reach_the_cap_exactly() -> None:
    qos = QosConfig(enabled=True, inbox_max_bytes=100, overflow="reject")
    assert with_inbox(60, qos, size=40).reason is None
    assert with_inbox(60, qos, size=41).reason is Reason.BACKPRESSURE


def test_an_overflow_is_admitted_with_the_bytes_that_must_leave() -> None:
    qos = QosConfig(enabled=True, inbox_max_bytes=1000)
    assert with_inbox(900, qos).evict_bytes == 0
    assert with_inbox(901, qos).evict_bytes == 1
    assert with_inbox(1000, qos).evict_bytes == SIZE


def test_room_is_made_by_evicting_from_the_heaviest_sender() -> None:
    verdict = DeliveryVerdict(evict_bytes=15)
    pending = [("a", 10), ("b", 20), ("a", 15)]
    assert make_room(verdict, arrival(), pending, {}, CircuitBreakers()) == [0, 1]
    assert (verdict.reason, verdict.evict_bytes) == (None, 15)


@pytest.mark.parametrize("pending", [[], [("a", 14)]])
def test_a_delivery_is_rejected_when_the_pending_messages_are_not_enough(
    pending: list[tuple[str, int]],
) -> None:
    verdict = DeliveryVerdict(evict_bytes=15)
    assert make_room(verdict, arrival(), pending, {}, CircuitBreakers()) == []
    assert (verdict.reason, verdict.evict_bytes) == (Reason.BACKPRESSURE, 0)
    assert verdict.detail == INBOX_KEPT_TEXT


@pytest.mark.parametrize("pending", [[], [("a", 15)]])
def test_a_probe_without_room_gives_its_slot_back(pending: list[tuple[str, int]]) -> None:
    breakers = opened_at(NOW - COOLDOWN)
    verdict = deliver(set(), breakers)
    verdict.evict_bytes = 15
    make_room(verdict, arrival(), pending, {}, breakers)
    assert verdict.probe == bool(pending)
    assert breakers.get_states()["agent.in"].probes_in_flight == len(pending)


def test_a_message_larger_than_the_whole_inbox_is_rejected() -> None:
    verdict = with_inbox(5, QosConfig(enabled=True, inbox_max_bytes=SIZE - 1))
    assert verdict.reason is Reason.BACKPRESSURE
    assert verdict.detail == "backpressure: inbox bytes full (5/99)"


@pytest.mark.parametrize("tier1", [TierLimits(0, 0), TierLimits(9, 9999)])
@pytest.mark.parametrize("calls", [0, 1])
def test_a_rejected_arrival_evicts_nothing(tier1: TierLimits, calls: int) -> None:
    qos = QosConfig(enabled=True, tier1=tier1, inbox_max_bytes=1000)
    verdict = with_inbox(1000, qos, calls=calls)
    assert verdict.evict_bytes == (SIZE if verdict.reason is None else 0)


def test_with_quotas_off_neither_tier_nor_bytes_matter() -> None:
    none = TierLimits(0, 0)
    verdict = with_inbox(5000, QosConfig(enabled=False, tier1=none, inbox_max_bytes=1))
    assert (verdict.reason, verdict.evict_bytes) == (None, 0)


# --- Everything off, and the numbers -------------------------------------------------------------


def test_with_everything_off_only_the_budget_can_reject() -> None:
    mailbox = Occupancy()
    for _ in range(5):
        mailbox.add("agent.out", 10_000)
    settings = Settings(
        backpressure=BackpressureConfig(enabled=False, max_mailbox_size=1),
        qos=QosConfig(enabled=False, tier1=TierLimits(0, 0), inbox_max_bytes=1),
    )
    breakers = opened_at(NOW)
    breakers.update_config(CircuitBreakerConfig(enabled=False))
    assert admit_delivery(arrival(), mailbox, breakers, settings, NOW).reason is None
    rejected = admit_delivery(arrival(calls=0), mailbox, breakers, settings, NOW)
    assert rejected.reason is Reason.BUDGET_EXCEEDED


def test_a_verdict_has_the_counters_it_is_based_on() -> None:
    verdict = deliver({"quota"})
    assert (verdict.depth, verdict.pressure) == (3, 0.75)
    assert (verdict.quota_count, verdict.quota_bytes) == (3, 3 * SIZE)


def test_judging_leaves_the_mailbox_and_the_arrival_as_they_were() -> None:
    mailbox, judged = Occupancy(), arrival()
    admit_delivery(judged, mailbox, CircuitBreakers(), Settings(), NOW)
    assert mailbox.depth == 0
    assert judged == arrival()


# --- The closed set of reasons -------------------------------------------------------------------


def test_only_a_spent_budget_makes_a_dead_letter() -> None:
    assert {Reason.BUDGET_EXCEEDED} == DEAD_LETTERED


def test_rejections_after_the_rate_limit_count_in_the_window() -> None:
    per_endpoint = {reason for reason, _ in CHECKS.values()}
    assert {Reason.FANOUT_EXCEEDED, *per_endpoint} == set(Reason) - UNCOUNTED


# --- Publishing to patterns ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "agent", "anonymous"),
    [("all", True, True), ("authenticated", True, False), ("none", False, False)],
)
def test_settings_choose_who_may_publish_to_patterns(
    allowed: Any, agent: bool, anonymous: bool
) -> None:
    settings = Settings(pattern_senders=allowed)
    assert may_use_patterns("agent.out", settings) is agent
    assert may_use_patterns("_anonymous", settings) is anonymous


def test_a_publish_may_reach_as_many_endpoints_as_the_settings_say() -> None:
    settings = Settings(max_fanout=100)
    assert admit_fan_out(100, settings) == ""
    texts = {admit_fan_out(count, settings) for count in (101, 132, 10_000)}
    assert texts == {"more than 100 endpoints match: use a narrower pattern (maxFanout)"}
    assert admit_fan_out(10_000, Settings()) == ""
