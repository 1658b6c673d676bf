"""Exceptions of the relay.

WaypostError
└── RelayError
    ├── DataDirInUse        another process owns the directory
    ├── DataDirUnusable     the directory cannot be created, read or written
    ├── JournalUnreadable   the journal was written by a newer version
    ├── RelayStopped        closed, or stopped because the journal could not be written
    │   ├── NotOwner        another node owns the partition now
    │   └── LogUnavailable  the replicated log did not answer in time
    ├── LogUnusable         the replicated log cannot be used as it is; the text names what to do
    │   └── LogLost         the replicated log lost events that it had confirmed
    ├── UnknownEndpoint     the endpoint is not registered
    ├── MailboxUnavailable  the directory of a new mailbox cannot be created
    ├── MailboxTaken        another consumer is attached to the mailbox
    ├── PoolFull            as many consumers share the mailbox as may
    ├── OtherPartition      the subject belongs to another relay of the same cluster
    ├── PartitionUnavailable  the relay of a partition cannot be reached, or cannot store
    ├── RulesFileBroken     the rules file must be repaired or deleted first
    ├── RequestRejected     no endpoint received the request; `result` has the reasons
    ├── RequestFailed       the recipient failed; `error` is the text it gave, if any
    └── RequestTimedOut     no reply within the timeout (also a TimeoutError)
"""

from waypost.policy.errors import WaypostError
from waypost.wire import errors


class RelayError(WaypostError):
    """Base of all errors of the relay."""


class DataDirInUse(RelayError):
    """Another process owns the data directory."""


class DataDirUnusable(RelayError):
    """The data directory cannot be created, read or written."""


class JournalUnreadable(RelayError):
    """The journal holds events that this version cannot read."""


class RelayStopped(RelayError):
    """The relay is closed, or it stopped because the journal could not be written.

    `full`: the disk was full.
    """

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class NotOwner(RelayStopped):
    """Another node owns the partition now. What was not confirmed may be in the log or not."""


class LogUnavailable(RelayStopped):
    """The replicated log did not answer in time. What was not confirmed may be in it or not."""


class LogUnusable(RelayError):
    """The replicated log cannot be used as it is."""


class LogLost(LogUnusable):
    """The replicated log lost events that it had confirmed; this node still has them."""


class UnknownEndpoint(RelayError):
    """The endpoint is not registered."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"endpoint {subject} is not registered: check the spelling")


class MailboxUnavailable(RelayError):
    """The directory of a new mailbox cannot be created: no inodes, no space, no permission."""

    def __init__(self, subject: str, problem: str) -> None:
        super().__init__(f"the mailbox of {subject} cannot be created: {problem}")


class MailboxTaken(RelayError):
    """Another consumer is attached to the mailbox, and not all of them share it."""

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"mailbox {subject} already has an attached consumer: only one may be attached, or"
            " several that share it"
        )


class PoolFull(RelayError):
    """As many consumers share the mailbox as the settings allow."""

    def __init__(self, subject: str, limit: int) -> None:
        super().__init__(
            f"{subject} is shared by {limit:,} connections already: use fewer, or raise maxWorkers"
        )


class OtherPartition(RelayError):
    """The subject belongs to another partition, whose relay has its mailbox and its limits."""

    def __init__(self, subject: str, partition: int) -> None:
        super().__init__(f"{subject} belongs to partition {partition}: use the relay of that one")
        self.partition = partition


class PartitionUnavailable(RelayError):
    """The relay of a partition cannot be reached, or cannot store: it decided nothing, or nothing
    that is known."""

    def __init__(self, partition: int, problem: str) -> None:
        super().__init__(f"partition {partition} is not available: {problem}")


class RulesFileBroken(RelayError):
    """The rules file cannot be read; every publish is denied until it is repaired or deleted."""


class RequestRejected(RelayError, errors.RequestRejected):
    """No endpoint received the request; `result` has the reasons."""


class RequestFailed(RelayError, errors.RequestFailed):
    """The recipient failed to process the request; `error` is the text it gave, or empty."""


class RequestTimedOut(RelayError, errors.RequestTimedOut):
    """No reply arrived within the timeout."""
