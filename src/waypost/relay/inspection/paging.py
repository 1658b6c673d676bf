"""Pages of a list in order of time: the next one begins after a cursor."""

Cursor = tuple[int, int]
"""The time (µs) of the last item of a page, and the number of its event."""


def cursor_text(cursor: Cursor) -> str:
    """Return a cursor as text."""
    return f"{cursor[0]}-{cursor[1]}"


def read_cursor(text: str) -> Cursor:
    """Return the cursor of such a text."""
    at_us, _, seq = text.partition("-")
    return int(at_us), int(seq)
