"""Why an agent cannot connect.

WaypostError
├── AlreadyConnected      the subject has a live connection; the first stays
├── TooManyConnections    the relay is at its bound
└── BrokenFrame           what came is not a frame, or not one that may come now
"""

from waypost.policy.errors import WaypostError

_TEXT_MAX_CHARS = 300


class AlreadyConnected(WaypostError):
    """The subject has a live connection."""

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"{subject} is already connected; one connection at a time, the first stays"
        )


class TooManyConnections(WaypostError):
    """The relay takes no more connections for now."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the relay holds {limit:,} connections and takes no more for now")


class BrokenFrame(WaypostError):
    """Not a frame, too long, or not allowed at this point. With a `code` the connection ends."""

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


def brief(problem: Exception) -> str:
    """What went wrong, for whoever caused it. It may quote them, but not at any length."""
    text = str(problem)
    return text if len(text) <= _TEXT_MAX_CHARS else f"{text[:_TEXT_MAX_CHARS]}…"
