"""Message identifiers: ULIDs generated here, or any short token of the caller.

Rule 1  Identifiers of one factory sort in the order of their creation.
Rule 2  The first ten characters are the time (ms); journal searches use them.

Time and entropy are arguments; this module has neither clock nor source of randomness.
"""

import re
from collections.abc import Callable, Iterator

from waypost.policy.bounds import message_id_length_max_chars
from waypost.policy.errors import InvalidMessage

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_CHARS = bytes(ord(_ALPHABET[value & 31]) for value in range(256))
_RANDOM_CHARS = 14
"""After the ten of the time and before the two of the counter."""

_DRAW_COUNT = 256

_is_ulid = re.compile(rf"[0-7][{_ALPHABET}]{{25}}").fullmatch
_is_message_id = re.compile(rf"[A-Za-z0-9_-]{{1,{message_id_length_max_chars}}}").fullmatch


class UlidFactory:
    """Generates ULIDs that only increase, even when the clock goes back."""

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy
        self._drawn: Iterator[str] = iter(())
        self._ms = -1
        self._days = ""
        self._random = self._prefix = ""
        self._count = 0

    def make(self, now_ms: int) -> str:
        """Return a new identifier for the instant `now_ms`."""
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
                self._random = _encode(_decode(self._random) + 1, 5 * _RANDOM_CHARS)
                self._prefix = self._prefix[:-_RANDOM_CHARS] + self._random
        return self._prefix + _PAIRS[self._count]

    def _draw(self) -> str:
        """Return random characters, one byte of entropy each, drawn in large blocks."""
        drawn = bytearray(self._entropy(_RANDOM_CHARS * _DRAW_COUNT))
        # The top bit stays free, so that counting up within one ms cannot overflow.
        drawn[::_RANDOM_CHARS] = bytes(one & 15 for one in drawn[::_RANDOM_CHARS])
        text = drawn.translate(_CHARS).decode()
        starts = range(0, len(text), _RANDOM_CHARS)
        self._drawn = iter([text[at : at + _RANDOM_CHARS] for at in starts])
        return next(self._drawn)


def ulid_time_ms(identifier: str) -> int | None:
    """Return the creation time of a ULID, or None if `identifier` is not one."""
    if not _is_ulid(identifier):
        return None
    return _decode(identifier[:10])


def is_message_id(text: str) -> bool:
    """Return whether `text` is a message id."""
    return _is_message_id(text) is not None


def validate_message_id(identifier: str) -> str:
    """Return `identifier` unchanged, or raise `InvalidMessage`. It becomes a file name."""
    given: object = identifier
    if isinstance(given, str) and is_message_id(given):
        return given
    raise InvalidMessage(
        f"invalid message id {identifier!r:.80}: expected 1 to {message_id_length_max_chars}"
        " letters, digits, '_' or '-'"
    )


def validate_thread(thread: str) -> str:
    """Return the id of a conversation unchanged, or raise `InvalidMessage`."""
    given: object = thread
    if isinstance(given, str) and is_message_id(given):
        return given
    raise InvalidMessage(
        f"invalid thread {thread!r:.80}: expected 1 to {message_id_length_max_chars}"
        " letters, digits, '_' or '-'"
    )


def _encode(value: int, bits: int) -> str:
    return "".join([_PAIRS[value >> shift & 1023] for shift in range(bits - 10, -10, -10)])


def _decode(text: str) -> int:
    value = 0
    for character in text:
        value = value << 5 | _VALUES[character]
    return value
