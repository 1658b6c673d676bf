"""Agents that read their inbox over HTTP, and since when each of them is there.

Rule 1  An agent is there from a read on, as long as the next one begins within a minute of it, or
        of the end of the wait that it asked for.
Rule 2  A message waited for its recipient if it is older than the last such time without a gap.

In memory only: after a restart, every message that is left has waited.
"""

from waypost.policy.bounds import readers_in_memory_max

GAP_MAX_US = 60 * 1_000_000
"""As long as the longest wait of one read."""


class Readers:
    """The position in the journal since which each agent is there."""

    def __init__(self) -> None:
        self._there: dict[str, tuple[int, int]] = {}

    def note_read(self, subject: str, seq: int, now_us: int, wait_s: float = 0.0) -> None:
        """Record that `subject` reads now, at `seq`, and waits up to `wait_s` for a message."""
        since, until_us = self._there.pop(subject, (seq, 0))
        if now_us > until_us:
            since = seq
        until_us = max(until_us, now_us + round(wait_s * 1e6) + GAP_MAX_US)
        self._there[subject] = (since, until_us)
        if len(self._there) > readers_in_memory_max:
            del self._there[next(iter(self._there))]

    def was_stored(self, subject: str, order: int) -> bool:
        """Return whether a message that `subject` has read waited for it."""
        there = self._there.get(subject)
        return there is None or order <= there[0]
