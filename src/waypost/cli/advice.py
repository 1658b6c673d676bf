"""What a sender can do about a refusal, in a few words."""

from typing import assert_never

from waypost.policy.reasons import Reason


def advice(reason: Reason, retry_after_ms: int) -> str:
    """What to do about `reason`; `retry_after_ms` is 0 where waiting does not help by itself."""
    match reason:
        case Reason.RATE_LIMITED:
            return f"this sender is too fast: {_try_again(retry_after_ms)}"
        case Reason.BACKPRESSURE:
            return "the mailbox is full: send again once its owner has acknowledged something"
        case Reason.QUOTA_EXCEEDED:
            return "wait until the recipient has read what this sender sent before"
        case Reason.CIRCUIT_OPEN:
            return f"deliveries there keep failing: {_try_again(retry_after_ms)}"
        case Reason.BUDGET_EXCEEDED:
            return "it is kept: see 'waypost dead-letters list', and redrive it if it is wanted"
        case Reason.STORAGE_FULL:
            return "free some space on the relay's disk, then send again"
        case Reason.ACCESS_DENIED:
            return "access-rules.json in the data directory decides who may write to whom"
        case _:
            assert_never(reason)


def _try_again(retry_after_ms: int) -> str:
    if retry_after_ms <= 0:
        return "send again later"
    return f"send again in {max(1, round(retry_after_ms / 1000)):,} s"
