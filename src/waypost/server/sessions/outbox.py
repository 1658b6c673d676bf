"""The bounded queue of operations to one agent.

Rule 1  Operations leave in the order in which they were added.
Rule 2  At the bound the outbox accepts nothing more, calls `on_overflow`, and the connection ends:
        an agent that does not read loses its connection, and nothing else.
Rule 3  Operations that may be lost (`put_lossy`: signals) are dropped long before that.
"""

import asyncio
from collections.abc import Callable, Iterable

from waypost.policy.bounds import outbox_max_operations, unconfirmed_max_bytes
from waypost.wire.frames import FrameOperation


class Outbox:
    """Filled by the relay, emptied by the writer of one connection."""

    def __init__(self, on_overflow: Callable[[], None]) -> None:
        # A list and a future take a tenth of the memory of a deque and an event.
        self._queue: list[tuple[FrameOperation, int]] = []
        self._waiting: asyncio.Future[None] | None = None
        self._bytes = 0
        self._ended = False
        self.overflowed = False
        self._on_overflow = on_overflow

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, operation: FrameOperation, size: int = 0) -> None:
        """Queue an operation; `size` is in bytes, 0 if it is negligible."""
        if self._ended:
            return
        self._queue.append((operation, size))
        self._bytes += size
        self._wake()
        if len(self._queue) > outbox_max_operations:
            self.overflowed = True
            self.end()
            self._on_overflow()

    def put_all(self, operations: Iterable[FrameOperation]) -> None:
        """Queue operations in this order."""
        for operation in operations:
            self.put(operation)

    def put_lossy(self, operation: FrameOperation, size: int) -> None:
        """Queue an operation of `size` bytes, or drop it if the agent is behind."""
        if len(self._queue) < outbox_max_operations // 2 and self._bytes < unconfirmed_max_bytes:
            self.put(operation, size)

    def end(self) -> None:
        """Accept nothing more; `take` still returns what is queued."""
        self._ended = True
        self._wake()

    async def take(self, limit: int, enough_bytes: int) -> list[FrameOperation]:
        """Wait for operations and return those for the next frame; none once it has ended.

        At most `limit`, and beyond the first none that would exceed `enough_bytes`.
        """
        while not self._queue and not self._ended:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        taken: list[FrameOperation] = []
        if self.overflowed:
            return taken
        for operation, size in self._queue[:limit]:
            if taken and size > enough_bytes:
                break
            enough_bytes -= size
            self._bytes -= size
            taken.append(operation)
        del self._queue[: len(taken)]
        return taken

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
