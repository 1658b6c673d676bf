"""Messages that have arrived and that the application has not asked for yet, in order.

Bounded by whoever fills it: past a number of messages or bytes it `is_full`, and then nobody
reads from the relay. The relay stops by itself when too many are unconfirmed, so that seldom
happens.
"""

import asyncio
from collections import deque

from waypost.client.message import Message
from waypost.client.options import ClientOptions


class Unread:
    """A queue with an end: what is in it then is not given out, for nobody could confirm it."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._waiting: deque[tuple[Message, int]] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._problem: Exception | None = None
        self._ended = False
        self.changed = asyncio.Event()
        """Set when there is room again."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether to stop reading from the relay."""
        return (
            len(self._waiting) >= self._options.unread_max_messages
            or self._bytes >= self._options.unread_max_bytes
        )

    def put(self, message: Message, size: int) -> None:
        """One more; `size` in bytes."""
        self._waiting.append((message, size))
        self._bytes += size
        self._arrived.set()

    def close(self, problem: Exception | None) -> None:
        """No more will come, because of `problem` or because the agent was closed."""
        self._ended = True
        self._problem = problem
        self._waiting.clear()
        self._bytes = 0
        self._arrived.set()
        self.changed.set()

    async def take(self, limit: int) -> list[Message]:
        """Up to `limit` messages, waiting for the first; none once closed.

        Raises the problem that ended it, if there was one.
        """
        while not self._waiting:
            if self._problem is not None:
                raise self._problem
            if self._ended:
                return []
            self._arrived.clear()
            await self._arrived.wait()
        taken: list[Message] = []
        while self._waiting and len(taken) < limit:
            message, size = self._waiting.popleft()
            self._bytes -= size
            taken.append(message)
        self.changed.set()
        return taken
