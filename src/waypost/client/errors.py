"""What can go wrong for an agent's process, as exceptions.

WaypostError
└── ClientError
    ├── MissingExtra          a library the client needs is not installed (also an ImportError)
    ├── CannotConnect         no relay answered in time, or what answered is no relay
    │   ├── NotAuthenticated  the relay does not believe who you are
    │   ├── SubjectTaken      the subject belongs to another key, or may not be used
    │   └── AlreadyConnected  somebody is connected under this subject
    ├── AgentClosed           the agent was closed
    ├── WrongReceiveMode      pushed mail asked of a pulling agent, or the other way round
    ├── OperationRejected      the relay could not do it; `reason` and `retry_after_ms` say more
    ├── SendTimedOut          no answer in time: stored or not, nobody knows (also a TimeoutError)
    ├── ReceiveTimedOut       nothing arrived in time (also a TimeoutError)
    ├── DeliveryTimedOut      not confirmed in time (also a TimeoutError)
    ├── RequestBlocked        the guard did not let the request out until `retry_after_ms` are over
    ├── RequestRejected       nobody got the request; `result` says why
    └── RequestTimedOut       no reply in time (also a TimeoutError)

A refused message is no exception: it is in the `PublishResult`.
"""

from waypost.policy.errors import WaypostError
from waypost.policy.guard import GuardRejectionReason
from waypost.wire import errors, frames


class ClientError(WaypostError):
    """The client cannot do what was asked."""


class MissingExtra(ClientError, ImportError):
    """A library that only the client needs is not installed."""

    def __init__(self, library: str) -> None:
        super().__init__(
            f'the client needs {library}, which is not installed: pip install "waypost[client]"'
        )


class CannotConnect(ClientError):
    """No relay answered in time, or what answered is no relay."""


class NotAuthenticated(CannotConnect):
    """The relay does not believe that this key speaks for this subject."""


class SubjectTaken(CannotConnect):
    """The subject is bound to another key, or agents may not use it."""


class AlreadyConnected(CannotConnect):
    """Somebody is connected under this subject; the relay keeps the first."""


class AgentClosed(ClientError):
    """The agent was closed before this was done."""


class WrongReceiveMode(ClientError):
    """An agent that pulls its mail gets none pushed, and the other way round."""


class OperationRejected(ClientError):
    """The relay answered with an error. `retry_after_ms` is 0 where waiting does not help."""

    def __init__(self, error: str, reason: str = "", retry_after_ms: int = 0) -> None:
        super().__init__(error)
        self.reason = reason
        self.retry_after_ms = retry_after_ms


class SendTimedOut(ClientError, TimeoutError):
    """No answer in time. Sending again with `message_id` is harmless: it is stored once."""

    def __init__(self, message_id: str, seconds: float) -> None:
        super().__init__(f"no answer to {message_id} within {seconds:g} s: it may be stored or not")
        self.message_id = message_id


class ReceiveTimedOut(ClientError, TimeoutError):
    """Nothing arrived in time."""


class DeliveryTimedOut(ClientError, TimeoutError):
    """The recipient has not confirmed in time; it may yet."""


class RequestBlocked(ClientError):
    """The guard did not let the request out. Not before `retry_after_ms`."""

    def __init__(self, subject: str, reason: GuardRejectionReason, retry_after_ms: int) -> None:
        super().__init__(f"request to {subject} not made: {reason}, again in {retry_after_ms} ms")
        self.reason = reason
        self.retry_after_ms = retry_after_ms


class RequestRejected(ClientError, errors.RequestRejected):
    """No endpoint received the request; `result` has the reasons."""


class RequestTimedOut(ClientError, errors.RequestTimedOut):
    """No reply arrived within the timeout. A late one arrives like any other message."""


def end_of_trying(code: int | None, text: str, *, first: bool) -> CannotConnect | None:
    """The error of a connection closed with `code`, if connecting again would be of no use.

    `first` tells that there was no connection before. Later on, whoever is already connected is
    most likely ourselves, a moment ago.
    """
    match code:
        case frames.CLOSE_NOT_AUTHENTICATED:
            return NotAuthenticated(text or "the relay does not accept the proof of identity")
        case frames.CLOSE_FORBIDDEN:
            return SubjectTaken(text or "the subject belongs to another key")
        case frames.CLOSE_ALREADY_CONNECTED if first:
            return AlreadyConnected(text or "somebody is connected under this subject")
    return None
