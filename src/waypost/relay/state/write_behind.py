"""A large map on disk, with new and recently used entries in memory.

Rule 1  `get` returns the newest value, in memory or on disk.
Rule 2  Memory is bounded: unwritten entries by the next checkpoint, written ones by `clean_max`.
Rule 3  As long as everything fits in memory, the disk is not read.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class WriteBehind(Generic[K, V]):
    """A write-behind cache of a table that `attach` names and checkpoints write."""

    def __init__(self, clean_max: int) -> None:
        self._lookup: Callable[[K], V | None] | None = None
        self._clean_max = clean_max
        self._dirty: dict[K, V] = {}
        self._flushing: dict[K, V] = {}
        self._clean: OrderedDict[K, V | None] = OrderedDict()
        self._table: Callable[[K], V | None] | None = None

    def get(self, key: K) -> V | None:
        """Return the value of `key`, or None."""
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
        """Set `key`; the next checkpoint writes it."""
        self._dirty[key] = value

    def begin_flush(self) -> dict[K, V]:
        """Return all unwritten entries; call `end_flush` once they are on disk."""
        self._flushing = {**self._flushing, **self._dirty}
        self._dirty = {}
        return self._flushing

    def end_flush(self) -> None:
        """Mark the entries of `begin_flush` as written."""
        for key, value in self._flushing.items():
            self._remember(key, value)
        self._flushing = {}

    def attach(self, rows: Iterable[tuple[K, V]], lookup: Callable[[K], V | None]) -> None:
        """Use the table read by `lookup`, and cache as many of its `rows` as memory may hold."""
        self._table = lookup
        for key, value in rows:
            if self._lookup is not None:
                break
            self._remember(key, value)

    def _remember(self, key: K, value: V | None) -> None:
        self._clean.pop(key, None)
        if len(self._clean) >= self._clean_max:
            self._clean.popitem(last=False)
            self._lookup = self._table  # from now on, a missing entry may be on disk
        self._clean[key] = value
