"""A log that measures what is appended to it and read from it."""

import time
from collections.abc import Callable

from waypost.relay.journal.log import Appended, Entry, Log, Outcome, Record, Tail

OnAppend = Callable[[float], None]
"""Is called with the seconds of an append, whatever its outcome."""


class MeasuredLog:
    """Has the interface of `Log`. `position` is that of the last record seen here."""

    def __init__(self, log: Log, on_append: OnAppend) -> None:
        self._log = log
        self._on_append = on_append
        self.position = 0

    async def append(self, expected: int, record: Record) -> Outcome:
        """Append a record, and report how long it took."""
        began = time.perf_counter()
        try:
            outcome = await self._log.append(expected, record)
        finally:
            self._on_append(time.perf_counter() - began)
        if isinstance(outcome, Appended):
            self.position = outcome.position
        return outcome

    async def read(self, after: int, wait_s: float = 0.0) -> list[Entry]:
        """Return the next records."""
        entries = await self._log.read(after, wait_s)
        self.position = entries[-1].position if entries else max(self.position, after)
        return entries

    async def tail(self) -> Tail:
        """Return the end of the log."""
        return await self._log.tail()

    async def close(self) -> None:
        """Close the log."""
        await self._log.close()
