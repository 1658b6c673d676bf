"""Changes that agents make to what the relay keeps of them: each is written to disk.

Rule 1  An agent makes a few changes a minute, and all agents together not many.
Rule 2  A change that is rejected does not count.
"""

import msgspec

from waypost.policy.rate_limits import RateWindows

WINDOW_MS = 60_000
_EVERYONE = ""
_AGENTS_MAX = 10_000


class ChangeVerdict(msgspec.Struct, frozen=True):
    """Whether an agent may make a change; if not, why, and when it may."""

    allowed: bool
    detail: str = ""
    retry_after_ms: int = 0


_ALLOWED = ChangeVerdict(True)


class OwnChanges:
    """The changes of one kind, `what`, within the last minute."""

    def __init__(self, what: str, each_max: int, all_max: int) -> None:
        self._what = what
        self._each_max = each_max
        self._all_max = all_max
        self._windows = RateWindows()

    def admit(self, subject: str, now_ms: int) -> ChangeVerdict:
        """Return whether the agent `subject` may make a change now; count it if so."""
        windows = self._windows
        limits = ((subject, self._each_max), (_EVERYONE, self._all_max))
        for window, limit in limits:
            if windows.count(window, now_ms, WINDOW_MS) >= limit:
                wait_ms = windows.retry_after_ms(window, now_ms, WINDOW_MS, limit)
                text = f"too many changes of {self._what}: at most {limit:,} a minute"
                return ChangeVerdict(False, text, max(1, wait_ms))
        if len(windows) > _AGENTS_MAX:
            windows.sweep(now_ms, WINDOW_MS)
        for window, _ in limits:
            windows.record(window, now_ms)
        return _ALLOWED
