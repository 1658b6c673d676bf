"""Deadlines of leased messages, connected agents and delays: one timer for all of a kind."""

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

from waypost.relay.clock import Cancel, Timers

What = TypeVar("What")

Deadline = tuple[int, str, What]
"""When (µs), of which subject, and what."""


class Deadlines(Generic[What]):
    """Calls `on_due` with the deadlines that have passed, the earliest first.

    A deadline cannot be removed: `on_due` ignores those that are no longer valid.
    """

    def __init__(
        self,
        timers: Timers,
        now_us: Callable[[], int],
        on_due: Callable[[list[Deadline[What]]], None],
    ) -> None:
        self._timers = timers
        self._now_us = now_us
        self._on_due = on_due
        self._heap: list[Deadline[What]] = []
        self._cancel_timer: Cancel | None = None
        self._timer_at_us = 0

    def add(self, deadline: Deadline[What]) -> None:
        """Add a deadline; `set_timer` has to follow."""
        heapq.heappush(self._heap, deadline)

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
        """Call `on_due` with every deadline that has passed."""
        now_us, self._timer_at_us = self._now_us(), 0
        due: list[Deadline[What]] = []
        while self._heap and self._heap[0][0] <= now_us:
            due.append(heapq.heappop(self._heap))
        self.set_timer()
        if due:
            self._on_due(due)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._cancel_timer is not None:
            self._cancel_timer()
