"""Scheduled messages: when a message is due that its sender wants delivered later.

Rule 1  All checks are made when the message arrives, and it counts in every limit from then on.
        Only the time of its budget is compared with the time at which it is due: a message that
        would have expired by then is rejected at once.
Rule 2  Its time to live begins when it is due, unless its parent or its own budget ends earlier.
Rule 3  It is no probe of a circuit breaker: its outcome would come too late.
Rule 4  An instant that has passed is now.

This module does not know when the relay notices that a message is due.
"""

import math
from datetime import UTC, datetime, timedelta

from waypost.policy.errors import InvalidMessage

Delay = float | timedelta
"""A delay: seconds, or a duration."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def due_time_us(
    delay: Delay | None, deliver_at: datetime | None, now_us: int, ahead_max_ms: int
) -> int:
    """Return when a message is due, in µs since the epoch; 0 if that is now.

    Raise `InvalidMessage` if that is more than `ahead_max_ms` ahead, or not a time.
    """
    if delay is None and deliver_at is None:
        return 0
    if delay is not None and deliver_at is not None:
        raise InvalidMessage("a message has a delay or deliver_at, not both")
    ahead_us = _delay_us(delay) if delay is not None else _instant_us(deliver_at) - now_us
    if ahead_us <= 0:
        return 0
    if ahead_us > ahead_max_ms * 1000:
        raise InvalidMessage(
            f"a message may be scheduled at most {ahead_max_ms / 1000:,g} seconds ahead"
            " (maxScheduleAheadMs)"
        )
    return now_us + ahead_us


def is_ahead(due_us: int, now_ms: int) -> bool:
    """Return whether a message scheduled for `due_us` is not due yet; to the ms, as a replay
    sees it."""
    return due_us // 1000 > now_ms


def _delay_us(delay: object) -> int:
    if isinstance(delay, timedelta):
        seconds = delay.total_seconds()
    elif isinstance(delay, int | float) and not isinstance(delay, bool):
        seconds = delay
    else:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InvalidMessage(f"delay must be 0 seconds or more, not {delay!r}")
    return int(min(seconds, timedelta.max.total_seconds()) * 1_000_000)


def _instant_us(at: object) -> int:
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidMessage(f"deliver_at must be a datetime with a time zone, not {at!r}")
    return (at - _EPOCH) // _MICROSECOND
