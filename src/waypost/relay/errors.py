"""What the runtime cannot do, as exceptions.

WaypostError
└── RelayError
    ├── DataDirInUse        another process owns the directory
    ├── DataDirUnusable     the directory cannot be created, read or written
    ├── JournalUnreadable   the journal was written by something newer
    ├── RelayStopped        closed, or stopped because the journal could not be written
    ├── UnknownEndpoint     no such endpoint is registered
    ├── MailboxTaken        another consumer stays at the mailbox
    ├── RulesFileBroken     the rules file must be repaired or deleted first
    ├── RequestRejected     the request itself was refused; `result` says why
    └── RequestTimedOut     no reply in time (also a TimeoutError)
"""

from waypost.policy.errors import WaypostError
from waypost.wire.results import PublishResult


class RelayError(WaypostError):
    """The relay cannot do what was asked."""


class DataDirInUse(RelayError):
    """Another process owns the data directory."""


class DataDirUnusable(RelayError):
    """The data directory cannot be created, read or written."""


class JournalUnreadable(RelayError):
    """The journal holds what this version does not know."""


class RelayStopped(RelayError):
    """The relay is closed, or it stopped because the journal could not be written.

    `full` tells that it was for lack of space.
    """

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class UnknownEndpoint(RelayError):
    """No such endpoint is registered."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"no endpoint is registered under {subject}")


class MailboxTaken(RelayError):
    """Somebody else stays at the mailbox; there is one consumer that stays at a time."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject} already has a consumer that stays")


class RulesFileBroken(RelayError):
    """The rules file cannot be read; until it is repaired or deleted nobody may publish."""


class RequestRejected(RelayError):
    """The request was not delivered to anyone; `result` says why."""

    def __init__(self, subject: str, result: PublishResult) -> None:
        reasons = ", ".join(f"{one.reason} ({one.detail})" for one in result.rejected)
        super().__init__(f"request to {subject} not delivered: {reasons or 'nobody is there'}")
        self.result = result


class RequestTimedOut(RelayError, TimeoutError):
    """No reply arrived in time."""
