"""Futures that wait for a result under a key: the answer to a ref, the reply to a message id."""

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class PendingFutures(Generic[K, T]):
    """Futures by key; several callers may wait for the same key."""

    def __init__(self) -> None:
        self._futures: dict[K, list[asyncio.Future[T]]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def expect(self, key: K) -> asyncio.Future[T]:
        """Return a future for `key`; pass it to `forget` once it is no longer awaited."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(key, []).append(future)
        return future

    def forget(self, key: K, future: asyncio.Future[T]) -> None:
        """Cancel and remove a future."""
        future.cancel()
        futures = self._futures.get(key, [])
        if future in futures:
            futures.remove(future)
            if not futures:
                del self._futures[key]

    def resolve(self, key: K, value: T) -> bool:
        """Set `value` as the result of every future of `key`; return False without any."""
        futures = self._futures.pop(key, [])
        for future in futures:
            if not future.done():
                future.set_result(value)
        return bool(futures)

    def fail(self, key: K, problem: Exception) -> None:
        """Raise `problem` in every caller that awaits `key`."""
        for future in self._futures.pop(key, []):
            if not future.done():
                future.set_exception(problem)
                future.exception()  # mark as retrieved: an abandoned future must not warn

    def fail_all(self, problem: Exception) -> None:
        """Raise `problem` in every caller."""
        for key in list(self._futures):
            self.fail(key, problem)
