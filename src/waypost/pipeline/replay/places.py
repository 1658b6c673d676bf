"""One order for the rows of many keys: by key, then by `seq`, told by a single number.

Keys are numbered, and the `place` of a row is the number of its key and its `seq` side by side.
Spark sorts by one number without comparing rows, and no text that names the key has to go along.

Executors use this, too.
"""

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEQ_BITS = 42
"""Enough for 4 million million events of one relay, and leaves room for 2 million keys."""

SEQ_MASK = (1 << SEQ_BITS) - 1
KEYS_MAX = 1 << (63 - SEQ_BITS)


class Relays:
    """Whose key a number is: keys of one relay are numbered one after another, from `firsts`."""

    def __init__(self, firsts: list[tuple[int, str]]) -> None:
        self._starts = [start for start, _ in firsts]
        self._names = [name for _, name in firsts]

    def of(self, number: int) -> str:
        """The relay of key `number`."""
        return self._names[bisect_right(self._starts, number) - 1]


def numbers_of(places: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """The keys of `places`."""
    return places >> SEQ_BITS


def seqs_of(places: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """What `places` tell besides the key."""
    return places & SEQ_MASK


def runs(numbers: "NDArray[np.int64]") -> list[int]:
    """Where a new key begins among rows in order, and their end."""
    new = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    return [0, *new.tolist(), len(numbers)] if len(numbers) else [0]
