"""Text that a terminal shows and does not obey.

Control characters can move the cursor, change the clipboard or forge lines; bidirectional and
invisible ones make text look like other text. Both are shown as escapes.
"""

import re

_unprintable_json = re.compile(r"[^\x00-\x7e]").sub


def printable(text: str) -> str:
    """Return `text` on one line, with unprintable characters as escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


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
