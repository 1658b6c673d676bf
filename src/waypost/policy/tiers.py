"""Tiers and quotas: how much of an inbox one sender may fill.

Rule 1  ACTIVE needs both directions within the window; an age equal to the window still counts.
Rule 2  ACKNOWLEDGED needs the reverse direction at any age. Everyone else is UNKNOWN.
Rule 3  A quota is about what lies in the inbox now. Exactly at the limit is accepted.
Rule 4  What a refused sender is told does not depend on its tier.

This module does not know content, block lists, or who anybody is: only who wrote to whom when.
"""

from enum import IntEnum
from typing import Annotated, Literal

import msgspec

from waypost.policy.rate_limits import PositiveInt
from waypost.policy.reserved_names import ANONYMOUS, RELAY

WEEK_MS = 7 * 24 * 3_600_000
QUOTA_EXCEEDED_TEXT = "sender quota exceeded for this inbox"

NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]


class Tier(IntEnum):
    """How well sender and recipient know each other."""

    UNKNOWN = 1
    ACKNOWLEDGED = 2
    ACTIVE = 3


UNKNOWN, ACKNOWLEDGED, ACTIVE = Tier
"""By themselves: to look one up in its class takes ten times as long, for every message."""


class TierLimits(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What one sender of a tier may have waiting in one inbox."""

    max_envelopes: NonNegativeInt
    max_bytes: NonNegativeInt


class QosConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Off in an embedded relay, whose callers trust each other; on in a served one."""

    enabled: bool = False
    tier1: TierLimits = TierLimits(20, 256 * 1024)
    tier2: TierLimits = TierLimits(100, 2 * 1024 * 1024)
    tier3: TierLimits = TierLimits(500, 10 * 1024 * 1024)
    bidirectional_window_ms: PositiveInt = WEEK_MS
    inbox_max_bytes: PositiveInt = 64 * 1024 * 1024
    overflow: Literal["evict_heaviest", "reject"] = "evict_heaviest"

    def limits(self, tier: int) -> TierLimits:
        """The limits of a `Tier`."""
        return (self.tier1, self.tier2, self.tier3)[tier - 1]


def tier_of(sent_ms: int | None, received_ms: int | None, now_ms: int, window_ms: int) -> Tier:
    """The tier of a sender that last wrote at `sent_ms` and last was written to at `received_ms`.

    None stands for never.
    """
    if received_ms is None:
        return UNKNOWN
    fresh = now_ms - window_ms
    if sent_ms is not None and sent_ms >= fresh and received_ms >= fresh:
        return ACTIVE
    return ACKNOWLEDGED


def standing(
    sender: str, sent_ms: int | None, received_ms: int | None, now_ms: int, window_ms: int
) -> Tier:
    """`tier_of`, for any sender: everyone knows the relay, nobody knows the anonymous."""
    if sender == RELAY:
        return ACTIVE
    if sender == ANONYMOUS:
        return UNKNOWN
    return tier_of(sent_ms, received_ms, now_ms, window_ms)


def within_quota(count: int, held_bytes: int, size_bytes: int, limits: TierLimits) -> bool:
    """Whether a sender holding `count` messages of `held_bytes` may add one of `size_bytes`."""
    return count < limits.max_envelopes and held_bytes + size_bytes <= limits.max_bytes
