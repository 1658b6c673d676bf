"""Rejections and failures as other processes see them: one struct, one table of HTTP statuses.

A quota rejection is the bare text and nothing else, in every tier: its sender must not learn its
tier from it.
"""

import msgspec

from waypost.policy.reasons import Reason
from waypost.policy.subjects import is_literal
from waypost.policy.tiers import QUOTA_EXCEEDED_TEXT
from waypost.wire.results import PublishResult, Rejection


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`error` is for people, `reason` for programs; `retry_after_ms` is 0 if waiting is useless.

    With `reason: moved`, the request is for another node of the relay, at `url`.
    """

    error: str
    reason: str = ""
    retry_after_ms: int = 0
    url: str = ""


STATUS: dict[Reason, int] = {
    Reason.RATE_LIMITED: 429,
    Reason.FANOUT_EXCEEDED: 422,
    Reason.BACKPRESSURE: 429,
    Reason.QUOTA_EXCEEDED: 429,
    Reason.CIRCUIT_OPEN: 503,
    Reason.BUDGET_EXCEEDED: 422,
    Reason.STORAGE_FULL: 503,
    Reason.ACCESS_DENIED: 403,
    Reason.MAILBOX_UNAVAILABLE: 503,
    Reason.PARTITION_UNAVAILABLE: 503,
}
"""The HTTP status of a publish that was rejected as a whole."""


def problem_of(rejection: Rejection, retry_after_ms: int = 0) -> Problem:
    """Return a rejection as its sender sees it."""
    if rejection.reason is Reason.QUOTA_EXCEEDED:
        return Problem(error=QUOTA_EXCEEDED_TEXT)
    return Problem(
        error=rejection.detail or str(rejection.reason),
        reason=rejection.reason,
        retry_after_ms=retry_after_ms,
    )


def discreet(result: PublishResult, subject: str) -> PublishResult:
    """Return the result of a publish to `subject` as its sender may see it.

    Mailbox fill levels are for local callers only. Of the endpoints that match a pattern, a sender
    learns how many rejected the message and why, not which.
    """
    show = _discreet if is_literal(subject) else _nameless
    return PublishResult(
        message_id=result.message_id,
        delivered_to=result.delivered_to,
        rejected=[show(one) for one in result.rejected],
        retry_after_ms=result.retry_after_ms,
        budget_cut=result.budget_cut,
    )


def _discreet(rejection: Rejection) -> Rejection:
    if rejection.reason is Reason.BACKPRESSURE:
        return msgspec.structs.replace(rejection, detail=QUEUE_FULL_TEXT)
    return rejection


def _nameless(rejection: Rejection) -> Rejection:
    """Return a rejection by one of many endpoints without its hash and its name."""
    shown = _discreet(rejection)
    if not shown.endpoint_hash:
        return shown
    detail = shown.detail
    if shown.reason is Reason.CIRCUIT_OPEN:
        detail = CIRCUIT_OPEN_TEXT
    elif shown.reason is Reason.BUDGET_EXCEEDED:
        detail = detail.partition(":")[0]  # "cycle detected", without its endpoint
    return Rejection("", shown.reason, detail)


CIRCUIT_OPEN_TEXT = "circuit open: deliveries to one of the recipients keep failing"
QUEUE_FULL_TEXT = "queue full: the recipient's mailbox accepts no more messages for now"
