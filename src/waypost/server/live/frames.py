"""Server-sent events: how one piece of news is written on a stream.

Every frame says what it is and holds one JSON value, which has no line feed in it.
"""

import msgspec

MEDIA_TYPE = "text/event-stream; charset=utf-8"

_encode = msgspec.json.Encoder().encode


def frame(event: str, content: object) -> bytes:
    """One event with its content as JSON."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), _encode(content))
