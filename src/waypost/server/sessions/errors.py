"""Errors of connections.

WaypostError
├── AlreadyConnected      the subject has a live connection, which stays; not both are shared
├── TooManyConnections    the relay is at its limit
├── SignalDropped         a signal over a rate, or to too many endpoints
└── BrokenFrame           a malformed frame, or one that is not allowed at this point
"""

from waypost.policy.errors import WaypostError
from waypost.policy.reasons import Reason

_TEXT_MAX_CHARS = 300


class AlreadyConnected(WaypostError):
    """The subject has a live connection, and not both it and the new one are shared."""

    def __init__(self, subject: str, *, shared: bool = False) -> None:
        """Take `shared`: whether the live connection is."""
        only = (
            "and shared by its workers: connect with shared=True to join them"
            if shared
            else "and not shared: a subject has one connection, or connect all of them with"
            " shared=True"
        )
        super().__init__(f"{subject} is already connected, {only}")


class TooManyConnections(WaypostError):
    """The relay accepts no more connections for now."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"too many connections: the relay is at its limit of {limit:,}; try later")


class SignalDropped(WaypostError):
    """A signal over a rate of its sender, or to too many endpoints."""

    def __init__(self, message: str, reason: Reason = Reason.RATE_LIMITED) -> None:
        super().__init__(message)
        self.reason = reason


class BrokenFrame(WaypostError):
    """A malformed, oversized or unexpected frame. With a `code`, the connection ends."""

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


def brief(problem: Exception) -> str:
    """Return the error text, shortened: it may quote what the agent sent."""
    text = str(problem)
    return text if len(text) <= _TEXT_MAX_CHARS else f"{text[:_TEXT_MAX_CHARS]}…"
