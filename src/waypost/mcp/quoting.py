"""Names and short texts of others, in lines that are not fenced.

Rule 1  A name that another agent chose is quoted, and cut if it is long. A cut name ends with a
        digest, so that no other name looks like it.
Rule 2  Invisible characters are written as escapes: a model must not read what a person looking at
        the same screen cannot see.
Rule 3  An id that another agent chose is never shown, because it may be a sentence. A ULID cannot
        be one.
"""

import hashlib
import re

from waypost.wire.identifiers import ulid_time_ms

NAME_MAX_CHARS = 64
TEXT_MAX_CHARS = 500
_KEPT_OF_LONG_NAMES = 40
_DIGEST_DIGITS = 8

_KEPT = "\t\u00a0\u3000"
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u3164\ufe00-\ufe0e\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks, by their category, that show nothing; U+FE0F is kept, for it colours emoji."""


def quoted(name: str) -> str:
    """Return a name in quotes, cut if it is long."""
    if len(name) > NAME_MAX_CHARS:
        digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:_DIGEST_DIGITS]
        name = f"{name[:_KEPT_OF_LONG_NAMES]}…{digest}"
    return f'"{one_line(name)}"'


def quoted_text(text: str) -> str:
    """Return a text of the relay in quotes: it may hold names of agents."""
    return f'"{one_line(text)}"'


def one_line(text: str) -> str:
    """Return a text as one visible line of bounded length."""
    cut = text if len(text) <= TEXT_MAX_CHARS else f"{text[:TEXT_MAX_CHARS]}…"
    return visible(cut)


def is_plain_id(message_id: str) -> bool:
    """Return whether a message id can be shown: it is a ULID, and so says nothing."""
    return ulid_time_ms(message_id) is not None


def visible(line: str) -> str:
    """Return a line with escapes in place of invisible characters, line breaks included."""
    if not line.isprintable():
        line = "".join(one if one.isprintable() or one in _KEPT else _escape(one) for one in line)
    return _INVISIBLE.sub(lambda found: _escape(found[0]), line)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
