"""The time that the relay spends on callers whose messages are all rejected.

Rule 1  Callers that had a message stored last time do not wait here.
Rule 2  Batches of the others are handled one at a time, and the relay rests after each: together
        they take a small share of its time, however many connections they come from.

This module does not know why messages were rejected.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from waypost.policy.bounds import (
    rejected_callers_max,
    rejected_pause_max_ms,
    waiting_batches_max,
)

REST_FACTOR = 9
"""The rest after a batch, by the time it took. Such batches get a tenth of the relay's time, and
more only if they take so long that the longest pause ends their rest."""


class Throttle:
    """Remembers callers whose last batch was rejected whole, and gives their batches turns.

    `waiting` is the number of batches that have a turn or wait for one.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._rejected: OrderedDict[str, None] = OrderedDict()
        self._turn = asyncio.Lock()
        self.waiting = 0

    @property
    def is_crowded(self) -> bool:
        """Whether so many batches wait that no further one should be kept in memory."""
        return self.waiting >= waiting_batches_max

    def applies_to(self, caller: str) -> bool:
        """Return whether the last batch of a caller was rejected whole."""
        return caller in self._rejected

    def record(self, caller: str, *, rejected: bool) -> None:
        """Remember whether every message of a caller's last batch was rejected."""
        self._rejected.pop(caller, None)
        if rejected:
            self._rejected[caller] = None
            if len(self._rejected) > rejected_callers_max:
                self._rejected.popitem(last=False)

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Wait for the turn of a caller's batch, and rest after it."""
        if not self.applies_to(caller):
            yield
            return
        self.waiting += 1
        try:
            async with self._turn:
                began = self._seconds()
                try:
                    yield
                finally:  # an invalid batch has taken its time, too
                    rest_s = (self._seconds() - began) * REST_FACTOR
                    await asyncio.sleep(min(rest_s, rejected_pause_max_ms / 1000))
        finally:
            self.waiting -= 1
