"""What other agents wrote, made fit to be read by a model.

Rule 1  It stands between two lines with a mark that is new each time and does not occur in it:
        whoever wrote it cannot have known the mark, so cannot close the fence.
Rule 2  What cannot be seen is written as an escape: a model must not read what a person looking
        over its shoulder does not see.
Rule 3  Nothing else is changed, and nothing is judged: whether to believe it is the reader's part.
"""

import re
import secrets

import msgspec

_MARK_BYTES = 8
_BEGIN = "-----BEGIN UNTRUSTED {mark}-----"
_END = "-----END UNTRUSTED {mark}-----"

FENCE_BYTES = len(_BEGIN.format(mark="")) + len(_END.format(mark="")) + 4 * _MARK_BYTES + 2
"""How much a fence adds to what it holds."""

_KEPT = "\n\t\u00a0\u3000"
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u3164\ufe00-\ufe0e\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks, by their category, that show nothing; U+FE0F stays, for it colours emoji."""


def readable(payload: object) -> str:
    """A payload as text: a string as it is, anything else as JSON; what is unseen, escaped."""
    text = payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()
    if text.isascii() and text.isprintable():
        return text
    return "\n".join(_visible(line) for line in text.split("\n"))


def fence(text: str) -> str:
    """`text` between two lines with a mark of its own."""
    mark = secrets.token_hex(_MARK_BYTES)
    while mark in text:
        mark = secrets.token_hex(_MARK_BYTES)
    return f"{_BEGIN.format(mark=mark)}\n{text}\n{_END.format(mark=mark)}"


def _visible(line: str) -> str:
    if not line.isprintable():
        line = "".join(one if one.isprintable() or one in _KEPT else _escape(one) for one in line)
    return _UNSEEN.sub(lambda found: _escape(found[0]), line)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
