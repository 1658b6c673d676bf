"""Text that a terminal shows and does not obey, and errors as such text.

Control characters can move the cursor, change the clipboard or forge lines; bidirectional and
invisible ones make text look like other text. Both are shown as escapes.
"""

import re

from waypost.policy.bounds import error_max_chars
from waypost.policy.errors import InvalidInput

_unprintable_json = re.compile(r"[^\x00-\x7e]").sub


def printable(text: str) -> str:
    """Return `text` on one line, with unprintable characters as escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def error_text(error: str | BaseException) -> str:
    """Return an error on one printable line of at most `error_max_chars`.

    Raises `InvalidInput` for anything else than a text or an exception.
    """
    if isinstance(error, BaseException):
        error = _described(error)
    if not isinstance(error, str):
        raise InvalidInput(f"error must be text or an exception, not {type(error).__name__}")
    return printable(error[:error_max_chars])[:error_max_chars].strip()


def _described(problem: BaseException) -> str:
    name = type(problem).__name__
    try:
        return f"{name}: {problem}" if str(problem) else name
    except Exception:  # of its own `__str__`
        return name


def printable_json(document: str) -> str:
    """Return the same JSON document, with unprintable characters in its strings as `\\u` escapes.

    A document written by an encoder has control characters below U+0020 only between its values.
    """
    return _unprintable_json(_escape_in_json, document)


def _escape_in_json(found: re.Match[str]) -> str:
    one = found.group()
    if one.isprintable():
        return one
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
