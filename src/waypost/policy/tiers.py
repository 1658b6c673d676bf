"""Tiers and quotas: how much of an inbox one sender may fill.

Rule 1  ACTIVE requires both directions within the window; an age equal to the window counts.
Rule 2  ACKNOWLEDGED requires the reverse direction at any age. Every other sender is UNKNOWN.
Rule 3  A quota limits what is in the inbox now. A message that reaches the limit is accepted.
Rule 4  The text of a rejection does not depend on the sender's tier.
Rule 5  All UNKNOWN senders together have a share of the inbox; beyond it they are rejected as for
        their own quota.
Rule 6  A limit of `number_max` or more is no limit: it is stored as `UNLIMITED`, which every JSON
        parser and Spark can hold.

This module does not know content, block lists or identities: only who wrote to whom, and when.
"""

from enum import IntEnum
from typing import Annotated, Literal

import msgspec

from waypost.policy.bounds import number_max
from waypost.policy.rate_limits import PositiveInt
from waypost.policy.reserved_names import ANONYMOUS, RELAY

WEEK_MS = 7 * 24 * 3_600_000
QUOTA_EXCEEDED_TEXT = "sender quota exceeded for this inbox"

UNLIMITED = number_max
"""A limit of a tier that is switched off."""

NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]


class Tier(IntEnum):
    """How well a recipient knows a sender."""

    UNKNOWN = 1
    ACKNOWLEDGED = 2
    ACTIVE = 3


UNKNOWN, ACKNOWLEDGED, ACTIVE = Tier
"""Module-level aliases: attribute access on an Enum class is ten times slower, and this runs per
message."""


class TierLimits(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Limits of what one sender of a tier may have in one inbox.

    A larger number than `UNLIMITED`, such as 2^64 - 1, becomes `UNLIMITED`.
    """

    max_envelopes: NonNegativeInt
    max_bytes: NonNegativeInt

    def __post_init__(self) -> None:
        for name in ("max_envelopes", "max_bytes"):
            given: object = getattr(self, name)
            if isinstance(given, int) and given > UNLIMITED:
                msgspec.structs.force_setattr(self, name, UNLIMITED)


class QosConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Off in an embedded relay, whose callers trust each other; on in a served one.

    Without `strangers`, as in journals from before it existed, UNKNOWN senders have no common
    share. `evict_heaviest` is the eviction of that time, which ignores tiers.
    """

    enabled: bool = False
    tier1: TierLimits = TierLimits(20, 256 * 1024)
    tier2: TierLimits = TierLimits(100, 2 * 1024 * 1024)
    tier3: TierLimits = TierLimits(500, 10 * 1024 * 1024)
    bidirectional_window_ms: PositiveInt = WEEK_MS
    inbox_max_bytes: PositiveInt = 64 * 1024 * 1024
    overflow: Literal["evict_least_known", "evict_heaviest", "reject"] = "evict_least_known"
    strangers: TierLimits | None = None

    def limits(self, tier: int) -> TierLimits:
        """Return the limits of a `Tier`."""
        return (self.tier1, self.tier2, self.tier3)[tier - 1]


def tier_of(sent_ms: int | None, received_ms: int | None, now_ms: int, window_ms: int) -> Tier:
    """Return the tier of a sender by when it last sent and last received a message.

    None is never.
    """
    if received_ms is None:
        return UNKNOWN
    window_start = now_ms - window_ms
    if sent_ms is not None and sent_ms >= window_start and received_ms >= window_start:
        return ACTIVE
    return ACKNOWLEDGED


def sender_tier(
    sender: str, sent_ms: int | None, received_ms: int | None, now_ms: int, window_ms: int
) -> Tier:
    """Return `tier_of` for any sender: the relay is ACTIVE, anonymous senders are UNKNOWN."""
    if sender == RELAY:
        return ACTIVE
    if sender == ANONYMOUS:
        return UNKNOWN
    return tier_of(sent_ms, received_ms, now_ms, window_ms)


def within_quota(count: int, held_bytes: int, size_bytes: int, limits: TierLimits) -> bool:
    """Return whether a sender with `count` messages of `held_bytes` may add `size_bytes`."""
    return count < limits.max_envelopes and held_bytes + size_bytes <= limits.max_bytes
