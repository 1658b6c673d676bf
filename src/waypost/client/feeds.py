"""A feed: what arrives for the application, for any number of listeners."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")

UNREAD_MAX = 10_000
"""Values kept for each slow listener; the oldest is dropped first."""


class Feed(Generic[T]):
    """Passes each value to all who listen at that moment."""

    def __init__(self) -> None:
        self._listeners: dict[object, deque[T]] = {}
        self._changed = asyncio.Event()
        self._ended = False

    def put(self, value: T) -> None:
        """Pass a value to every listener."""
        if self._listeners:
            for queue in self._listeners.values():
                queue.append(value)
            self._changed.set()

    def listen(self) -> AsyncIterator[T]:
        """Return an iterator over all values from now on, until the feed ends."""
        key, queue = object(), deque[T](maxlen=UNREAD_MAX)
        self._listeners[key] = queue
        return self._follow(key, queue)

    def end(self) -> None:
        """End every listener once it has read what has arrived."""
        self._ended = True
        self._changed.set()

    async def _follow(self, key: object, queue: deque[T]) -> AsyncIterator[T]:
        try:
            while True:
                while queue:
                    yield queue.popleft()
                if self._ended:
                    return
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._listeners.pop(key, None)
