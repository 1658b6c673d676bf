"""What goes to one agent next, bounded: an agent that does not read loses its connection, no more.

Rule 1  Operations leave in the order in which they were put.
Rule 2  Past the bound nothing is taken any more; `on_overflow` is called, and the connection ends.
Rule 3  What may be lost (`put_lossy`: signals) is dropped long before that.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from waypost.policy.bounds import outbox_max_operations, unconfirmed_max_bytes
from waypost.wire.frames import FrameOperation


class Outbox:
    """Filled by the relay, emptied by one connection's writer."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[FrameOperation, int]] = deque()
        self._filled = asyncio.Event()
        self._bytes = 0
        self._ended = False
        self.overflowed = False
        self.on_overflow: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, operation: FrameOperation, size: int = 0) -> None:
        """To be sent; `size` in bytes, if it is worth mentioning."""
        if self._ended:
            return
        self._waiting.append((operation, size))
        self._bytes += size
        self._filled.set()
        if len(self._waiting) > outbox_max_operations:
            self.overflowed = True
            self.end()
            self.on_overflow()

    def put_all(self, operations: Iterable[FrameOperation]) -> None:
        """To be sent, in this order."""
        for operation in operations:
            self.put(operation)

    def put_lossy(self, operation: FrameOperation, size: int) -> None:
        """To be sent if the agent keeps up; `size` in bytes."""
        if len(self._waiting) < outbox_max_operations // 2 and self._bytes < unconfirmed_max_bytes:
            self.put(operation, size)

    def put_back(self, operations: Sequence[FrameOperation]) -> None:
        """These were taken and could not be sent."""
        self._waiting.extendleft((one, 0) for one in reversed(operations))

    def end(self) -> None:
        """Nothing is taken from here on; what was put before is still given out."""
        self._ended = True
        self._filled.set()

    def unsent(self) -> list[FrameOperation]:
        """What was put and never sent."""
        return [operation for operation, _ in self._waiting]

    async def take(self, limit: int, enough_bytes: int) -> list[FrameOperation]:
        """The next operations for one frame, waiting for the first; none once it has ended.

        At most `limit`, and no other that would make it more than `enough_bytes`.
        """
        while not self._waiting and not self._ended:
            self._filled.clear()
            await self._filled.wait()
        taken: list[FrameOperation] = []
        while self._waiting and len(taken) < limit and not self.overflowed:
            size = self._waiting[0][1]
            if taken and size > enough_bytes:
                break
            enough_bytes -= size
            self._bytes -= size
            taken.append(self._waiting.popleft()[0])
        return taken
