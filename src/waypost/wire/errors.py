"""Failures of a request, from the relay or from a client.

WaypostError
├── RequestRejected       no endpoint received the request; `result` has the reasons
├── RequestFailed         the recipient failed; `error` is the text it gave, if any
└── RequestTimedOut       no reply within the timeout (also a TimeoutError)

`relay.errors` and `client.errors` each raise a subclass that is also a `RelayError` or a
`ClientError`, so that `except waypost.RequestTimedOut` catches both.
"""

from waypost.policy.errors import WaypostError
from waypost.wire.results import PublishResult


class RequestRejected(WaypostError):
    """No endpoint received the request; `result` has the reasons."""

    def __init__(self, subject: str, result: PublishResult) -> None:
        reasons = ", ".join(f"{one.reason} ({one.detail})" for one in result.rejected)
        super().__init__(f"request to {subject} not delivered: {reasons or 'no such endpoint'}")
        self.result = result


class RequestFailed(WaypostError):
    """The recipient failed to process the request; `error` is the text it gave, or empty."""

    def __init__(self, subject: str, error: str) -> None:
        super().__init__(f"{subject} failed: {error}" if error else f"{subject} failed the request")
        self.error = error


class RequestTimedOut(WaypostError, TimeoutError):
    """No reply arrived within the timeout."""
