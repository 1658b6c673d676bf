"""A clock that tests advance by hand."""

import heapq
import itertools
from collections.abc import Callable


class ManualClock:
    """Microseconds since the epoch, advanced by hand. A relay with it never waits on real time."""

    def __init__(self, start_us: int = 1_700_000_000_000_000) -> None:
        self.now_us = start_us
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._tickets = itertools.count()

    def __call__(self) -> int:
        return self.now_us

    def call_at(self, at_us: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once the clock reaches `at_us`; return a cancel function."""
        ticket = next(self._tickets)
        heapq.heappush(self._due, (at_us, ticket, callback))
        return lambda: self._cancelled.add(ticket)

    def advance_ms(self, milliseconds: int) -> None:
        """Advance the clock, running each due callback at its own time."""
        self.advance_us(milliseconds * 1000)

    def advance_us(self, microseconds: int) -> None:
        """Advance the clock by microseconds; see `advance_ms`."""
        if microseconds < 0:
            raise ValueError("a clock cannot go back")
        end_us = self.now_us + microseconds
        while self._due and self._due[0][0] <= end_us:
            at_us, ticket, callback = heapq.heappop(self._due)
            self.now_us = max(self.now_us, at_us)
            if ticket in self._cancelled:
                self._cancelled.discard(ticket)
            else:
                callback()
        self.now_us = end_us
