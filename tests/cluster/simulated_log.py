"""A replicated log in memory that fails in every way the port allows, by seeded choices.

Appends may be confirmed, lost, confirmed without an answer, or arrive late; answers may be stale,
held back while their node is paused, or never come; the log may forget its end.
"""

import asyncio
import random
from collections import deque

from waypost.relay.errors import LogUnavailable
from waypost.relay.journal.log import (
    Appended,
    Conflict,
    Entry,
    Outcome,
    Record,
    Tail,
    Unknown,
)

RECORDS_PER_READ = 5


class Faults:
    """How often something goes wrong, as probabilities; `none` ends it."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.lost = random_.choice([0.0, 0.05, 0.2])
        self.unanswered = random_.choice([0.0, 0.05, 0.2])
        self.late = random_.choice([0.0, 0.05])
        self.stale = random_.choice([0.0, 0.1])
        self.unavailable = random_.choice([0.0, 0.05])

    def none(self) -> None:
        """Let everything work from now on."""
        self.lost = self.unanswered = self.late = self.stale = self.unavailable = 0.0

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability


class SimulatedLog:
    """The records, shared by all nodes; `connect` returns what one node sees of them."""

    def __init__(self, faults: Faults) -> None:
        self.records: list[Record] = []
        self.faults = faults
        self.forgotten = 0
        """How often the log has lost its end."""
        self.trimmed = 0
        """The last position that is past retention."""
        self._late: deque[tuple[int, Record]] = deque()

    def connect(self) -> "Connection":
        return Connection(self)

    def append(self, expected: int, record: Record) -> Outcome:
        if expected != len(self.records):
            return Conflict(len(self.records))
        self.records.append(record)
        return Appended(len(self.records))

    def tail(self, stale: int = 0) -> Tail:
        position = max(0, len(self.records) - stale)
        return Tail(position, self.records[position - 1].header if position else None)

    def delay(self, expected: int, record: Record) -> None:
        """Let an append arrive later, if it still fits then."""
        self._late.append((expected, record))

    def deliver_late(self) -> None:
        while self._late:
            self.append(*self._late.popleft())

    def forget(self, count: int) -> None:
        """Lose the last records, though they were confirmed; never all."""
        count = min(count, len(self.records) - 1)
        if count > 0:
            del self.records[-count:]
            self.forgotten += 1


class Connection:
    """One node's way to the log. `pause` holds its calls back, `cut` ends it for good."""

    def __init__(self, shared: SimulatedLog) -> None:
        self._shared = shared
        self._open = asyncio.Event()
        self._open.set()
        self.waiting = asyncio.Event()
        """Set while a call is held back."""
        self.is_cut = False

    @property
    def is_paused(self) -> bool:
        return not self._open.is_set()

    def pause(self) -> None:
        self._open.clear()

    def resume(self) -> None:
        self.waiting.clear()
        self._open.set()

    def cut(self) -> None:
        self.is_cut = True
        self.resume()

    async def append(self, expected: int, record: Record) -> Outcome:
        faults, shared = self._shared.faults, self._shared
        before = faults.random.random() < 0.5
        outcome = shared.append(expected, record) if before and self.is_paused else None
        await self._turn()
        if outcome is not None:
            return outcome
        if faults.happens(faults.lost):
            return Unknown("lost")
        if faults.happens(faults.late):
            shared.delay(expected, record)
            return Unknown("late")
        outcome = shared.append(expected, record)
        return Unknown("unanswered") if faults.happens(faults.unanswered) else outcome

    async def read(self, after: int, wait_s: float = 0.0) -> list[Entry]:
        await self._turn()
        faults, records = self._shared.faults, self._shared.records
        if faults.happens(faults.unavailable):
            raise LogUnavailable("the simulated log does not answer")
        end = len(records) - faults.random.randrange(3) if faults.happens(faults.stale) else None
        after = max(after, self._shared.trimmed)
        found = list(enumerate(records[:end], 1))[after : after + RECORDS_PER_READ]
        return [Entry(position, record) for position, record in found]

    async def tail(self) -> Tail:
        await self._turn()
        faults = self._shared.faults
        if faults.happens(faults.unavailable):
            raise LogUnavailable("the simulated log does not answer")
        return self._shared.tail(faults.random.randrange(3) if faults.happens(faults.stale) else 0)

    async def close(self) -> None:
        pass

    async def _turn(self) -> None:
        """Wait while the node is paused; fail once it is cut off."""
        if not self._open.is_set():
            self.waiting.set()
            await self._open.wait()
        if self.is_cut:
            raise LogUnavailable("the node was killed")
