"""Eviction by tier, and the share of strangers, in the decision about one delivery."""

from dataclasses import dataclass
from typing import Any

import pytest

from waypost.policy.admission import (
    INBOX_KEPT_TEXT,
    DeliveryVerdict,
    admit_delivery,
    keeps_dead_letter,
    make_room,
)
from waypost.policy.breakers import CircuitBreakers
from waypost.policy.budgets import Budget, create_default_budget
from waypost.policy.occupancy import Occupancy
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import RELAY
from waypost.policy.settings import Settings
from waypost.policy.tiers import QUOTA_EXCEEDED_TEXT, QosConfig, Tier, TierLimits

NOW = 1_000_000
SIZE = 100


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


def arrival(tier: Tier) -> Arriving:
    return Arriving("m-1", "agent.out", "agent.in", create_default_budget(NOW), SIZE, tier)


def test_the_least_known_sender_is_evicted_first_and_then_the_heaviest() -> None:
    pending = [("friend", 90), ("heavy", 40), ("light", 10), ("heavy", 10)]
    tiers = {"friend": Tier.ACTIVE, "heavy": Tier.UNKNOWN, "light": Tier.UNKNOWN}
    arriving = arrival(tier=Tier.ACTIVE)
    for needed, victims in ((1, [1]), (41, [1, 3]), (55, [1, 3, 2]), (61, [1, 3, 2, 0])):
        verdict = DeliveryVerdict(evict_bytes=needed)
        assert make_room(verdict, arriving, pending, tiers, CircuitBreakers()) == victims
        assert verdict.reason is None


@pytest.mark.parametrize("tier", Tier)
def test_no_sender_is_evicted_for_a_worse_known_one(tier: Tier) -> None:
    pending = [(one.name, 10) for one in Tier]
    tiers = {one.name: one for one in Tier}
    allowed = int(tier) * 10
    enough = DeliveryVerdict(evict_bytes=allowed)
    too_much = DeliveryVerdict(evict_bytes=allowed + 1)
    arriving = arrival(tier=tier)
    assert make_room(enough, arriving, pending, tiers, CircuitBreakers()) == list(range(tier))
    assert make_room(too_much, arriving, pending, tiers, CircuitBreakers()) == []
    assert (too_much.reason, too_much.detail) == (Reason.BACKPRESSURE, INBOX_KEPT_TEXT)


@pytest.mark.parametrize(
    ("overflow", "reason"), [("evict_heaviest", None), ("evict_least_known", Reason.BACKPRESSURE)]
)
def test_nothing_is_evicted_for_a_message_of_the_relay(
    overflow: Any, reason: Reason | None
) -> None:
    mailbox, arriving = Occupancy(), arrival(tier=Tier.ACTIVE)
    mailbox.add("agent.other", 1000)
    arriving.sender = RELAY
    qos = QosConfig(enabled=True, inbox_max_bytes=1000, overflow=overflow)
    verdict = admit_delivery(arriving, mailbox, CircuitBreakers(), Settings(qos=qos), NOW)
    assert verdict.reason is reason


@pytest.mark.parametrize(
    ("share", "tier", "reason"),
    [
        (TierLimits(3, 1000), Tier.UNKNOWN, None),
        (TierLimits(2, 1000), Tier.UNKNOWN, Reason.QUOTA_EXCEEDED),
        (TierLimits(3, 119), Tier.UNKNOWN, Reason.QUOTA_EXCEEDED),
        (TierLimits(3, 120), Tier.UNKNOWN, None),
        (TierLimits(0, 0), Tier.ACKNOWLEDGED, None),
        (TierLimits(0, 0), Tier.ACTIVE, None),
        (None, Tier.UNKNOWN, None),
    ],
)
def test_strangers_together_have_a_share(
    share: TierLimits | None, tier: Tier, reason: Reason | None
) -> None:
    mailbox = Occupancy()
    for number in range(2):
        mailbox.add(f"agent.stranger{number}", 10, Tier.UNKNOWN)
        mailbox.add(f"agent.friend{number}", 500, Tier.ACKNOWLEDGED)
    qos = QosConfig(enabled=True, strangers=share)
    settings = Settings(qos=qos)
    verdict = admit_delivery(arrival(tier=tier), mailbox, CircuitBreakers(), settings, NOW)
    assert verdict.reason is reason
    if reason is not None:
        assert verdict.detail == QUOTA_EXCEEDED_TEXT


@pytest.mark.parametrize(
    ("qos", "tier", "kept"),
    [
        (QosConfig(enabled=True, tier1=TierLimits(3, 1000)), Tier.UNKNOWN, True),
        (QosConfig(enabled=True, tier1=TierLimits(2, 1000)), Tier.UNKNOWN, False),
        (QosConfig(enabled=True, tier1=TierLimits(3, 119)), Tier.UNKNOWN, False),
        (QosConfig(enabled=True, tier1=TierLimits(2, 1000)), Tier.ACTIVE, True),
        (QosConfig(enabled=True, strangers=TierLimits(3, 1000)), Tier.UNKNOWN, False),
        (QosConfig(enabled=True, strangers=TierLimits(4, 1000)), Tier.UNKNOWN, True),
        (QosConfig(enabled=True, strangers=TierLimits(0, 0)), Tier.ACTIVE, True),
        (QosConfig(enabled=False, tier1=TierLimits(0, 0)), Tier.UNKNOWN, True),
    ],
)
def test_dead_letters_of_a_spent_budget_are_under_quota_and_share(
    qos: QosConfig, tier: Tier, kept: bool
) -> None:
    rejected = Occupancy()
    for sender in ("agent.out", "agent.out", "agent.other"):
        rejected.add(sender, 10, Tier.UNKNOWN)
    assert keeps_dead_letter(arrival(tier), rejected, Settings(qos=qos)) == kept
