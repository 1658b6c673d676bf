"""A large map kept on disk, with what is new and what is hot in memory.

Rule 1  `get` gives the newest value, wherever it is.
Rule 2  Memory is bounded: unwritten entries by the next checkpoint, read ones by `clean_max`.
Rule 3  While everything fits in memory, the disk is not asked.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class WriteBehind(Generic[K, V]):
    """`lookup` reads the table on disk; a checkpoint writes what `begin_flush` gives."""

    def __init__(self, clean_max: int) -> None:
        self._lookup: Callable[[K], V | None] | None = None
        self._clean_max = clean_max
        self._dirty: dict[K, V] = {}
        self._flushing: dict[K, V] = {}
        self._clean: dict[K, V | None] = {}
        self._table: Callable[[K], V | None] | None = None

    def get(self, key: K) -> V | None:
        """The value of `key`, or None."""
        value = self._dirty.get(key)  # None is never put
        if value is not None:
            return value
        value = self._flushing.get(key)
        if value is not None:
            return value
        if self._lookup is None:
            return self._clean.get(key)
        if key in self._clean:
            return self._clean[key]
        value = self._lookup(key)
        self._remember(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Set `key`; written at the next checkpoint."""
        self._dirty[key] = value

    def begin_flush(self) -> dict[K, V]:
        """Everything not yet written. `end_flush` follows once it is on disk."""
        self._flushing = {**self._flushing, **self._dirty}
        self._dirty = {}
        return self._flushing

    def end_flush(self) -> None:
        """What `begin_flush` gave is on disk now."""
        for key, value in self._flushing.items():
            self._remember(key, value)
        self._flushing = {}

    def attach(self, rows: Iterable[tuple[K, V]], lookup: Callable[[K], V | None]) -> None:
        """What lies on disk; of `rows` no more is read than memory may hold."""
        self._table = lookup
        for key, value in rows:
            if self._lookup is not None:
                break
            self._remember(key, value)

    def _remember(self, key: K, value: V | None) -> None:
        self._clean.pop(key, None)
        if len(self._clean) >= self._clean_max:
            del self._clean[next(iter(self._clean))]
            self._lookup = self._table  # from now on, what is not in memory may be on disk
        self._clean[key] = value
