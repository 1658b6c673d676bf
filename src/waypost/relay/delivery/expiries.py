"""Expired messages in the log: a count for each recipient, whatever found them.

A message can be found expired by a publish to its mailbox, a lease, a consumer or the sweep. The
counts are written by the next sweep, so that a busy mailbox is one line and not one for each
message, and at most `logged_expiries_per_minute_max` lines in a minute name a recipient.
"""

import logging
from collections import Counter

from waypost.policy.bounds import logged_expiries_per_minute_max

log = logging.getLogger("waypost.relay")

_MINUTE_US = 60_000_000


class ExpiryLog:
    """Counts of expired messages that are not yet in the log."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._minute = 0
        self._written = 0

    def count(self, endpoint: str) -> None:
        """Count an expired message of `endpoint`."""
        self._counts[endpoint] += 1

    def write(self, now_us: int) -> None:
        """Log the counts, the largest first; recipients above the limit share one line."""
        minute = now_us // _MINUTE_US
        if minute != self._minute:
            self._minute, self._written = minute, 0
        counts, self._counts = self._counts, Counter()
        named = counts.most_common(logged_expiries_per_minute_max - self._written)
        self._written += len(named)
        for endpoint, number in named:
            log.info("expired %d messages for %s", number, endpoint)
            del counts[endpoint]
        if counts:
            log.info("expired %d messages for %d more recipients", counts.total(), len(counts))
