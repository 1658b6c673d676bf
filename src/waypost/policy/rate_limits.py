"""Sliding-window rate limits, one window per sender.

Rule 1  A publish counts for `window_secs`; at exactly that age it no longer counts.
Rule 2  Only publishes that pass are counted: a rejection does not prolong the wait.
Rule 3  The times of one sender never go back; the caller ensures that.
Rule 4  Senders without a key share a name: each network has a window of its own, and all together
        have a larger one, so that one network cannot use it up.

This module does not know endpoints: a publish counts once, whatever its fan-out.
"""

from array import array
from bisect import bisect_right
from typing import Annotated

import msgspec

from waypost.policy.bounds import number_max

PositiveInt = Annotated[int, msgspec.Meta(ge=1, le=number_max)]


class RateLimitConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """100 messages in 60 s; the override with the longest prefix of the sender's name applies."""

    enabled: bool = True
    window_secs: PositiveInt = 60
    max_per_window: PositiveInt = 100
    anonymous_max_per_window: PositiveInt = 1000
    per_sender_overrides: dict[str, PositiveInt] = {}


DEFAULT_RATE_LIMIT_CONFIG = RateLimitConfig()


class RateLimitResult(msgspec.Struct, frozen=True, gc=False):
    """The decision; `current_count` and `limit` are None if rate limits are off."""

    allowed: bool
    reason: str | None = None
    current_count: int | None = None
    limit: int | None = None


def check_rate_limit(
    sender: str, count_in_window: int, config: RateLimitConfig = DEFAULT_RATE_LIMIT_CONFIG
) -> RateLimitResult:
    """Return whether `sender`, with `count_in_window` publishes, may publish again."""
    if not config.enabled:
        return RateLimitResult(True)
    limit = resolve_limit(sender, config)
    if count_in_window < limit:
        return RateLimitResult(True, None, count_in_window, limit)
    return RateLimitResult(
        False,
        f"rate limit exceeded: {count_in_window}/{limit} messages in {config.window_secs}s window",
        count_in_window,
        limit,
    )


def resolve_limit(sender: str, config: RateLimitConfig = DEFAULT_RATE_LIMIT_CONFIG) -> int:
    """Return the limit of `sender`: that of the longest override that is a prefix of it."""
    best, limit = -1, config.max_per_window
    for prefix, override in config.per_sender_overrides.items():
        if len(prefix) > best and sender.startswith(prefix):
            best, limit = len(prefix), override
    return limit


def network_window(sender: str, network: str) -> str:
    """Return the key of the window of one network; no name has a space."""
    return f"{sender} {network}"


class RateWindows:
    """The times (ms) of each sender's recent publishes."""

    def __init__(self) -> None:
        self._sent: dict[str, array[int]] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def count(self, sender: str, now_ms: int, window_ms: int) -> int:
        """Return how many publishes of `sender` count at `now_ms`."""
        sent = self._sent.get(sender)
        if not sent:
            return 0
        start = now_ms - window_ms
        if sent[0] > start:
            return len(sent)
        gone = bisect_right(sent, start)
        if gone > 64 and gone * 2 > len(sent):  # amortized: each entry is moved once
            del sent[:gone]
            gone = 0
        return len(sent) - gone

    def record(self, sender: str, at_ms: int) -> None:
        """Count a publish of `sender`."""
        sent = self._sent.get(sender)
        if sent is None:
            self._sent[sender] = array("q", (at_ms,))
        else:
            sent.append(at_ms)

    def retry_after_ms(self, sender: str, now_ms: int, window_ms: int, limit: int) -> int:
        """Return how long until `sender` is below `limit` again."""
        sent = self._sent.get(sender)
        if sent is None or len(sent) < limit:
            return 0
        return max(0, sent[-limit] + window_ms - now_ms)

    def sweep(self, now_ms: int, window_ms: int) -> int:
        """Forget senders whose window is empty; return how many."""
        # Counting drops old entries; with rate limits off, only the sweep counts.
        idle = [sender for sender in self._sent if self.count(sender, now_ms, window_ms) == 0]
        for sender in idle:
            del self._sent[sender]
        return len(idle)

    def clear(self) -> None:
        """Forget every sender."""
        self._sent.clear()

    def snapshot(self, now_ms: int, window_ms: int) -> dict[str, list[int]]:
        """Return the times that count at `now_ms`, by sender."""
        start = now_ms - window_ms
        live = ((sender, [at for at in sent if at > start]) for sender, sent in self._sent.items())
        return {sender: sent for sender, sent in live if sent}
