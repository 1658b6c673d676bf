"""Errors of webhooks.

WaypostError
└── WebhookError
    ├── HostNotAllowed          the settings do not allow the host of a URL
    ├── NoWebhook               the agent has none
    ├── TooManyWebhookChanges   webhooks are set, tested or removed too often
    ├── TooManyWebhooks         no further webhook can be set
    └── WebhookNotSaved         a change could not be made durable, so it is not valid
"""

from waypost.policy.errors import WaypostError


class WebhookError(WaypostError):
    """The base of all errors of webhooks."""


class HostNotAllowed(WebhookError):
    """The settings do not allow the host of a URL."""


class NoWebhook(WebhookError):
    """The agent has none."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject} has no webhook; 'waypost webhooks set' sets one")


class TooManyWebhookChanges(WebhookError):
    """Webhooks are set, tested or removed too often; try again after `retry_after_ms`."""

    def __init__(self, text: str, retry_after_ms: int) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms


class TooManyWebhooks(WebhookError):
    """No further webhook can be set."""


class WebhookNotSaved(WebhookError):
    """A change could not be made durable, so it is not valid."""
