"""Message identifiers: ULIDs made here, or any short token a caller brings.

Rule 1  Identifiers from one factory sort in the order in which they were made.
Rule 2  The first ten characters are the time (ms); the journal is searched by them.

Time and entropy are arguments; this module has neither clock nor source of randomness.
"""

import re
from collections.abc import Callable

from waypost.policy.bounds import message_id_length_max_chars
from waypost.policy.errors import InvalidMessage

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}
_RANDOM_BITS = 80

_is_ulid = re.compile(rf"[0-7][{_ALPHABET}]{{25}}").fullmatch
_is_message_id = re.compile(rf"[A-Za-z0-9_-]{{1,{message_id_length_max_chars}}}").fullmatch


class UlidFactory:
    """Makes ULIDs that only ever grow, even when the clock goes back."""

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy
        self._pool = b""
        self._ms = -1
        self._prefix = ""
        self._random = 0

    def make(self, now_ms: int) -> str:
        """A new identifier for the instant `now_ms`."""
        if now_ms > self._ms:
            self._ms = now_ms
            # The top bit stays free, so that counting up within one ms cannot overflow.
            self._begin(self._draw() >> 1)
        else:
            self._random += 1
            if not self._random & 1023:
                self._begin(self._random)
        return self._prefix + _PAIRS[self._random & 1023]

    def _begin(self, random: int) -> None:
        """All but the last two characters are the same for a while: make them once."""
        self._random = random
        self._prefix = _encode(self._ms, 50) + _encode(random >> 10, _RANDOM_BITS - 10)

    def _draw(self) -> int:
        """80 random bits, asked for in large pieces."""
        if not self._pool:
            self._pool = self._entropy(10 * 256)
        drawn, self._pool = self._pool[:10], self._pool[10:]
        return int.from_bytes(drawn)


def ulid_time_ms(identifier: str) -> int | None:
    """When a ULID was made, or None if `identifier` is not one."""
    if not _is_ulid(identifier):
        return None
    value = 0
    for letter in identifier[:10]:
        value = value << 5 | _VALUES[letter]
    return value


def validate_message_id(identifier: str) -> str:
    """Return `identifier` unchanged, or raise `InvalidMessage`. It becomes a file name."""
    given: object = identifier
    if isinstance(given, str) and _is_message_id(given):
        return given
    raise InvalidMessage(
        f"invalid message id {identifier!r:.80}: expected 1 to {message_id_length_max_chars}"
        " letters, digits, '_' or '-'"
    )


def _encode(value: int, bits: int) -> str:
    return "".join([_PAIRS[value >> shift & 1023] for shift in range(bits - 10, -10, -10)])
