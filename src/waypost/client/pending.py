"""Callers that wait for something with a name: the answer to a ref, the reply to a message."""

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Waiting(Generic[K, T]):
    """Futures by key; several callers may wait for the same."""

    def __init__(self) -> None:
        self._futures: dict[K, list[asyncio.Future[T]]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def expect(self, key: K) -> asyncio.Future[T]:
        """A future for `key`, to be given back with `forget` if it is not waited for."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(key, []).append(future)
        return future

    def forget(self, key: K, future: asyncio.Future[T]) -> None:
        """This caller waits no more."""
        future.cancel()
        futures = self._futures.get(key, [])
        if future in futures:
            futures.remove(future)
            if not futures:
                del self._futures[key]

    def resolve(self, key: K, value: T) -> bool:
        """Give `value` to everyone who waits for `key`; False if nobody does."""
        futures = self._futures.pop(key, [])
        for future in futures:
            if not future.done():
                future.set_result(value)
        return bool(futures)

    def fail(self, key: K, problem: Exception) -> None:
        """Raise `problem` in everyone who waits for `key`."""
        for future in self._futures.pop(key, []):
            if not future.done():
                future.set_exception(problem)
                future.exception()  # seen: whoever gave up meanwhile is no reason for a warning

    def fail_all(self, problem: Exception) -> None:
        """Raise `problem` in everyone."""
        for key in list(self._futures):
            self.fail(key, problem)
