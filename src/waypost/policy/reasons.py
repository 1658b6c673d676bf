"""The closed set of reasons for rejecting a message, and the form of other reasons: texts."""

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    """Why an arrival was rejected. Closed: every consumer handles every member."""

    RATE_LIMITED = "rate_limited"
    FANOUT_EXCEEDED = "fanout_exceeded"
    BACKPRESSURE = "backpressure"
    QUOTA_EXCEEDED = "quota_exceeded"
    CIRCUIT_OPEN = "circuit_open"
    BUDGET_EXCEEDED = "budget_exceeded"
    STORAGE_FULL = "storage_full"
    ACCESS_DENIED = "access_denied"
    MAILBOX_UNAVAILABLE = "mailbox_unavailable"
    PARTITION_UNAVAILABLE = "partition_unavailable"


WORDS: Mapping[str, str] = {
    Reason.RATE_LIMITED: "rate limit",
    Reason.FANOUT_EXCEEDED: "too many recipients",
    Reason.BACKPRESSURE: "mailbox full",
    Reason.QUOTA_EXCEEDED: "sender quota",
    Reason.CIRCUIT_OPEN: "breaker open",
    Reason.BUDGET_EXCEEDED: "budget exceeded",
    Reason.STORAGE_FULL: "disk full",
    Reason.ACCESS_DENIED: "access denied",
    Reason.MAILBOX_UNAVAILABLE: "mailbox not created",
    Reason.PARTITION_UNAVAILABLE: "partition not available",
}
"""Each reason in the words of the dashboard, the report and the findings."""

DEAD_LETTERED: frozenset[Reason] = frozenset({Reason.BUDGET_EXCEEDED})
"""Rejections that keep the message as a dead letter."""

UNCOUNTED: frozenset[Reason] = frozenset(
    {
        Reason.RATE_LIMITED,
        Reason.ACCESS_DENIED,
        Reason.STORAGE_FULL,
        Reason.MAILBOX_UNAVAILABLE,
        Reason.PARTITION_UNAVAILABLE,
    }
)
"""Rejections that do not count in the sender's rate window."""


def reason_text(kind: str, detail: str) -> str:
    """Return the reason of an event: its kind, then a detail such as an error, if there is one."""
    return f"{kind}: {detail}" if detail else kind


def reason_kind(reason: str) -> str:
    """Return the kind of a reason, without its detail, by which reasons are grouped."""
    return reason.partition(": ")[0]
