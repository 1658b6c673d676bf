"""A large map on disk, with new and recently used entries in memory.

Rule 1  `get` returns the newest value, in memory or on disk.
Rule 2  Memory is bounded: unwritten entries by the next checkpoint, written ones, in two
        generations, by `written_max` and one checkpoint.
Rule 3  The disk is not read for a key that was never written: a filter knows most of them.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_BITS = 1 << 26  # 8 MiB, of which the system gives only what is used
_KEYS_MAX = 4_000_000  # one in 17 of other keys is then taken for one of them


class _Table:
    def __init__(self) -> None:
        self.bits = bytearray(_BITS >> 3)
        self.left = _KEYS_MAX
        self.closed_us = 0
        """When it was full; all its keys were added before."""


class KeyFilter:
    """Keys that may have been added: one bit of a large table for each, at the place of its hash.

    Hashes are different in every process: keys that collide cannot be chosen. One thread adds and
    forgets, any may ask. Another table begins whenever the last one is full.
    """

    def __init__(self) -> None:
        self._tables: list[_Table] = []

    def __contains__(self, key: Hashable) -> bool:
        """Return False if `key` was certainly never added, or its table was forgotten."""
        at = hash(key) % _BITS
        for table in self._tables:
            if table.bits[at >> 3] >> (at & 7) & 1:
                break
        else:
            return False
        return True

    def add(self, key: Hashable) -> None:
        """Add a key."""
        if not self._tables or not self._tables[-1].left:
            self._tables.append(_Table())
        table, at = self._tables[-1], hash(key) % _BITS
        table.bits[at >> 3] |= 1 << (at & 7)
        table.left -= 1

    def forget(self, before_us: int, now_us: int) -> None:
        """Forget tables that were full before `before_us`; `now_us` is the time of this call."""
        for table in self._tables:
            if not table.left and not table.closed_us:
                table.closed_us = now_us
        self._tables = [one for one in self._tables if not 0 < one.closed_us < before_us]


class WriteBehind(Generic[K, V]):
    """A write-behind cache of a table that `attach` names and checkpoints write."""

    def __init__(self, written_max: int) -> None:
        self._generation_max = written_max // 2
        self._dirty: dict[K, V] = {}
        self._flushing: dict[K, V] = {}
        self._younger: dict[K, V | None] = {}
        self._older: dict[K, V | None] = {}
        self._all_in_memory = True
        self._on_disk = KeyFilter()
        self._lookup: Callable[[K], V | None] = lambda key: None

    def get(self, key: K) -> V | None:
        """Return the value of `key`, or None."""
        value = self._dirty.get(key)  # None is never put
        if value is not None:
            return value
        if self._flushing and (value := self._flushing.get(key)) is not None:
            return value
        if key in self._younger:
            return self._younger[key]
        if self._older and key in self._older:
            return self._older[key]
        if self._all_in_memory or key not in self._on_disk:
            return None
        value = self._younger[key] = self._lookup(key)
        self._age()
        return value

    def put(self, key: K, value: V) -> None:
        """Set `key`; the next checkpoint writes it."""
        self._dirty[key] = value

    def begin_flush(self) -> dict[K, V]:
        """Return all unwritten entries; once they are on disk, call `end_flush`."""
        if self._flushing:
            self._dirty = {**self._flushing, **self._dirty}
        self._flushing, self._dirty = self._dirty, {}
        return self._flushing

    def filter(self, entries: Mapping[K, V]) -> None:
        """Note that entries of `begin_flush` are about to be on disk.

        The thread that writes them may do this.
        """
        for key in entries:
            self._on_disk.add(key)

    def end_flush(self) -> None:
        """Mark the entries of `begin_flush` as written; `filter` knows them."""
        self._younger.update(self._flushing)
        self._flushing = {}
        self._age()

    def forget(self, before_us: int, now_us: int) -> None:
        """Note that the disk forgets entries put before `before_us`; as `filter`."""
        self._on_disk.forget(before_us, now_us)

    def attach(
        self, newest: Iterable[tuple[K, V]], keys: Iterable[K], lookup: Callable[[K], V | None]
    ) -> None:
        """Use a table: its `newest` entries, all its `keys`, and `lookup` of one."""
        self._lookup = lookup
        self._younger.update(islice(newest, self._generation_max))
        self._all_in_memory = len(self._younger) < self._generation_max
        for key in keys:
            self._on_disk.add(key)
        self._age()

    def _age(self) -> None:
        """Forget the older generation once the younger one is full."""
        if len(self._younger) >= self._generation_max:
            if self._older:
                self._all_in_memory = False
            self._younger, self._older = {}, self._younger
