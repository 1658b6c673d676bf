"""The receive queue: messages that arrived and that the application has not taken yet, in order.

The queue does not drop messages. Past a number of messages or bytes it `is_full`, and the
connection stops reading from the relay. The relay itself stops when too many messages are unacked,
so a full queue is rare. An answer may stand behind the messages that a relay has in flight, so
reading continues for one until the queue `is_overfull`: an honest relay has less in flight.
"""

import asyncio
from collections import deque

from waypost.client.message import Message
from waypost.client.options import ClientOptions

IN_FLIGHT_MAX_MESSAGES = 10_000
IN_FLIGHT_MAX_BYTES = 64 * 1024 * 1024
"""Unacked messages that a relay may have in flight; it announces the number in its welcome."""


class ReceiveQueue:
    """A queue that can be closed; messages left in it are dropped, because no ack can be sent."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._messages: deque[tuple[Message, int]] = deque()
        self._bytes = 0
        self._largest_bytes = 0
        self._arrived = asyncio.Event()
        self._problem: Exception | None = None
        self._closed = False
        self.changed = asyncio.Event()
        """Set when there is room again."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_full(self) -> bool:
        """Return whether to stop reading from the relay."""
        return (
            len(self._messages) >= self._options.unread_max_messages
            or self._bytes >= self._options.unread_max_bytes
        )

    def is_overfull(self, in_flight_max: int) -> bool:
        """Return whether to stop reading even if an answer is to be read.

        `in_flight_max` is the number of unacked messages that the relay has announced.
        """
        room = min(max(0, in_flight_max), IN_FLIGHT_MAX_MESSAGES)
        # One message may be larger than all that may be in flight.
        others_bytes = self._bytes - self._largest_bytes
        return (
            len(self._messages) >= self._options.unread_max_messages + room
            or others_bytes >= self._options.unread_max_bytes + IN_FLIGHT_MAX_BYTES
        )

    def put(self, message: Message, size: int) -> None:
        """Append a message that takes `size` bytes of memory."""
        self._messages.append((message, size))
        self._bytes += size
        self._largest_bytes = max(self._largest_bytes, size)
        self._arrived.set()

    def close(self, problem: Exception | None) -> None:
        """Close the queue, because of `problem` or because the agent was closed."""
        self._closed = True
        self._problem = problem
        self._messages.clear()
        self._bytes = 0
        self._arrived.set()
        self.changed.set()

    async def take(self, limit: int) -> list[Message]:
        """Return up to `limit` messages, waiting for the first; none once closed.

        Raises the problem that closed the queue, if any.
        """
        while not self._messages:
            if self._problem is not None:
                raise self._problem
            if self._closed:
                return []
            self._arrived.clear()
            await self._arrived.wait()
        taken: list[Message] = []
        while self._messages and len(taken) < limit:
            message, size = self._messages.popleft()
            self._bytes -= size
            taken.append(message)
        if not self._messages:
            self._largest_bytes = 0
        self.changed.set()
        return taken
