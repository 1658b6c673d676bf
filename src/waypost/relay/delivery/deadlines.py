"""Deadlines of leased messages and of connected agents, with one timer for all of them."""

import heapq
from collections.abc import Callable

from waypost.relay.clock import Cancel, Timers


class Deadlines:
    """Calls `on_due(at_us, subject, id)` when a deadline has passed, the earliest first.

    A deadline cannot be removed: `on_due` ignores those that are no longer valid.
    """

    def __init__(
        self, timers: Timers, now_us: Callable[[], int], on_due: Callable[[int, str, str], None]
    ) -> None:
        self._timers = timers
        self._now_us = now_us
        self._on_due = on_due
        self._heap: list[tuple[int, str, str]] = []
        self._cancel_timer: Cancel | None = None
        self._timer_at_us = 0

    def add(self, at_us: int, subject: str, id_: str) -> None:
        """Add a deadline; `set_timer` has to follow."""
        heapq.heappush(self._heap, (at_us, subject, id_))

    def set_timer(self) -> None:
        """Set the timer for the earliest deadline."""
        if not self._heap:
            return
        next_us = self._heap[0][0]
        if self._timer_at_us and self._timer_at_us <= next_us:
            return
        if self._cancel_timer is not None:
            self._cancel_timer()
        self._timer_at_us = next_us
        self._cancel_timer = self._timers.call_at(next_us, self.run_due)

    def run_due(self) -> None:
        """Call `on_due` for every deadline that has passed."""
        now_us, self._timer_at_us = self._now_us(), 0
        while self._heap and self._heap[0][0] <= now_us:
            self._on_due(*heapq.heappop(self._heap))
        self.set_timer()

    def stop(self) -> None:
        """Cancel the timer."""
        if self._cancel_timer is not None:
            self._cancel_timer()
