"""Failures of the client, as exceptions.

WaypostError
└── ClientError
    ├── MissingExtra          a library of the `client` extra is not installed (also an ImportError)
    ├── CannotConnect         no relay answered in time, or the server is not a relay
    │   ├── NotAuthenticated  the relay rejected the proof of identity
    │   ├── SubjectTaken      the subject is bound to another key, or reserved
    │   └── AlreadyConnected  another connection uses this subject
    ├── RelayMoved            another node serves this agent; the connection follows by itself
    ├── AgentClosed           the agent was closed
    ├── WrongReceiveMode      a push operation on a pulling agent, or the reverse
    ├── OperationRejected     the relay rejected an operation; see `reason` and `retry_after_ms`
    ├── SendTimedOut          no answer in time: stored or not is unknown (also a TimeoutError)
    ├── ReceiveTimedOut       no message in time (also a TimeoutError)
    ├── DeliveryTimedOut      no delivery confirmation in time (also a TimeoutError)
    ├── RequestBlocked        the guard blocked the request; retry after `retry_after_ms`
    ├── RequestRejected       no endpoint received the request; `result` has the reasons
    ├── RequestFailed         the recipient failed; `error` is the text it gave, if any
    └── RequestTimedOut       no reply within the timeout (also a TimeoutError)

A rejected message raises nothing: its rejections are in the `PublishResult`.
"""

from waypost.policy.errors import InvalidMessage, WaypostError
from waypost.policy.guard import GuardRejectionReason, MessagingGuardConfig, limit_of
from waypost.wire import errors, frames


class ClientError(WaypostError):
    """Base of the client's exceptions."""


class MissingExtra(ClientError, ImportError):
    """A library of the `client` extra is not installed."""

    def __init__(self, library: str) -> None:
        super().__init__(
            f'the client needs {library}, which is not installed: pip install "waypost[client]"'
        )


class CannotConnect(ClientError):
    """No relay answered in time, or the server is not a relay."""


class NotAuthenticated(CannotConnect):
    """The relay rejected the proof that this key belongs to this subject."""


class SubjectTaken(CannotConnect):
    """The subject is bound to another key, or reserved."""


class AlreadyConnected(CannotConnect):
    """Another connection uses this subject; the relay keeps the first."""


class RelayMoved(ClientError):
    """Another node of the relay serves this agent, at `url`. The connection follows by itself."""

    def __init__(self, url: str) -> None:
        super().__init__(f"another node of the relay serves this agent: {url!r:.200}")
        self.url = url


class AgentClosed(ClientError):
    """The agent was closed before the operation finished."""


class WrongReceiveMode(ClientError):
    """A push operation on an agent that pulls, or the reverse."""


class OperationRejected(ClientError):
    """The relay rejected an operation. `retry_after_ms` is 0 where waiting does not help."""

    def __init__(self, error: str, reason: str = "", retry_after_ms: int = 0) -> None:
        super().__init__(error)
        self.reason = reason
        self.retry_after_ms = retry_after_ms


class SendTimedOut(ClientError, TimeoutError):
    """No answer in time. Sending again with `message_id` is harmless: it is stored once."""

    def __init__(self, message_id: str, seconds: float) -> None:
        super().__init__(
            f"no answer to {message_id} within {seconds:g} s: it may or may not be stored"
        )
        self.message_id = message_id


class ReceiveTimedOut(ClientError, TimeoutError):
    """No message arrived in time."""


class DeliveryTimedOut(ClientError, TimeoutError):
    """No recipient confirmed the message in time; one still may."""


class RequestBlocked(ClientError):
    """The guard blocked the request before it was sent; retry after `retry_after_ms`."""

    def __init__(
        self,
        subject: str,
        reason: GuardRejectionReason,
        retry_after_ms: int,
        limits: MessagingGuardConfig,
    ) -> None:
        limit = limit_of(reason, limits)
        super().__init__(
            f"request to {subject} blocked by the guard: {reason}: {limit.text}; retry in"
            f" {retry_after_ms} ms, or change {limit.field} in ClientOptions.guard"
            f" ({limit.variable} for commands)"
        )
        self.reason = reason
        self.retry_after_ms = retry_after_ms


class RequestRejected(ClientError, errors.RequestRejected):
    """No endpoint received the request; `result` has the reasons."""


class RequestFailed(ClientError, errors.RequestFailed):
    """The recipient failed to process the request; `error` is the text it gave, or empty."""


class RequestTimedOut(ClientError, errors.RequestTimedOut):
    """No reply arrived within the timeout. A late one arrives like any other message."""


def operation_error(error: frames.Error) -> Exception:
    """Return the exception for an operation that the relay answered with `error`."""
    if error.reason == "invalid":
        return InvalidMessage(error.error)
    return OperationRejected(error.error, error.reason, error.retry_after_ms)


def permanent_failure(code: int | None, text: str, *, first: bool) -> CannotConnect | None:
    """Return the error of a connection closed with `code`; None if a new attempt may succeed.

    `first` means that no attempt has succeeded yet. After a success, the other connection under
    this subject is most likely our own, not yet closed by the relay.
    """
    match code:
        case frames.CLOSE_NOT_AUTHENTICATED:
            return NotAuthenticated(text or "the relay rejected the proof of identity")
        case frames.CLOSE_FORBIDDEN:
            return SubjectTaken(text or "the subject is bound to another key")
        case frames.CLOSE_ALREADY_CONNECTED if first:
            return AlreadyConnected(text or "another connection uses this subject")
    return None
