"""Message identifiers: ULIDs made here, or any short token a caller brings.

Rule 1  Identifiers from one factory sort in the order in which they were made.
Rule 2  The first ten characters are the time (ms); the journal is searched by them.

Time and entropy are arguments; this module has neither clock nor source of randomness.
"""

import re
from collections.abc import Callable, Iterator

from waypost.policy.bounds import message_id_length_max_chars
from waypost.policy.errors import InvalidMessage

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}
_LETTERS = bytes(ord(_ALPHABET[value & 31]) for value in range(256))
_RANDOM_LETTERS = 14
"""After the ten of the time and before the two that count."""

_DRAWN_AT_ONCE = 256

_is_ulid = re.compile(rf"[0-7][{_ALPHABET}]{{25}}").fullmatch
_is_message_id = re.compile(rf"[A-Za-z0-9_-]{{1,{message_id_length_max_chars}}}").fullmatch


class UlidFactory:
    """Makes ULIDs that only ever grow, even when the clock goes back."""

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy
        self._drawn: Iterator[str] = iter(())
        self._ms = -1
        self._days = ""
        self._random = self._prefix = ""
        self._count = 0

    def make(self, now_ms: int) -> str:
        """A new identifier for the instant `now_ms`."""
        if now_ms > self._ms:
            if now_ms >> 30 != self._ms >> 30:
                self._days = _encode(now_ms >> 30, 20)
            self._ms, self._count = now_ms, 0
            self._random = next(self._drawn, None) or self._draw()
            time = _PAIRS[now_ms >> 20 & 1023] + _PAIRS[now_ms >> 10 & 1023] + _PAIRS[now_ms & 1023]
            self._prefix = self._days + time + self._random
        else:
            self._count += 1
            if self._count == len(_PAIRS):
                self._count = 0
                self._random = _encode(_decode(self._random) + 1, 5 * _RANDOM_LETTERS)
                self._prefix = self._prefix[:-_RANDOM_LETTERS] + self._random
        return self._prefix + _PAIRS[self._count]

    def _draw(self) -> str:
        """Random letters, a byte each, asked for in large pieces."""
        drawn = bytearray(self._entropy(_RANDOM_LETTERS * _DRAWN_AT_ONCE))
        # The top bit stays free, so that counting up within one ms cannot overflow.
        drawn[::_RANDOM_LETTERS] = bytes(one & 15 for one in drawn[::_RANDOM_LETTERS])
        letters = drawn.translate(_LETTERS).decode()
        ends = range(0, len(letters), _RANDOM_LETTERS)
        self._drawn = iter([letters[at : at + _RANDOM_LETTERS] for at in ends])
        return next(self._drawn)


def ulid_time_ms(identifier: str) -> int | None:
    """When a ULID was made, or None if `identifier` is not one."""
    if not _is_ulid(identifier):
        return None
    return _decode(identifier[:10])


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


def _decode(letters: str) -> int:
    value = 0
    for letter in letters:
        value = value << 5 | _VALUES[letter]
    return value
