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
    ├── RequestRejected     no endpoint received the request; `result` has the reasons
    └── RequestTimedOut     no reply within the timeout (also a TimeoutError)
"""

from waypost.policy.errors import WaypostError
from waypost.wire import errors


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


class RequestRejected(RelayError, errors.RequestRejected):
    """No endpoint received the request; `result` has the reasons."""


class RequestTimedOut(RelayError, errors.RequestTimedOut):
    """No reply arrived within the timeout."""
