"""Exceptions for callers. Expected rejections are values, not exceptions.

WaypostError
├── InvalidInput
│   ├── InvalidSubject      not a subject, or not a pattern
│   ├── InvalidMessage      an invalid payload, budget or message id
│   ├── InvalidSettings     a setting out of range, or of the wrong type
│   └── InvalidRule         an invalid access rule
├── AccessDenied            the sender may publish to no matching endpoint
└── RelayError              (relay/errors.py) errors of the relay
"""


class WaypostError(Exception):
    """Base of every exception that this package raises on purpose."""


class InvalidInput(WaypostError, ValueError):
    """Input that can never be accepted."""


class InvalidSubject(InvalidInput):
    """Not a valid subject or pattern."""


class InvalidMessage(InvalidInput):
    """An invalid payload, budget or message id."""


class InvalidSettings(InvalidInput):
    """A setting out of range or of the wrong type."""


class InvalidRule(InvalidInput):
    """An invalid access rule."""


class AccessDenied(WaypostError):
    """Access rules deny every recipient of a publish, or settings deny publishing to patterns."""

    def __init__(self, sender: str, subject: str, text: str = "") -> None:
        super().__init__(text or f"access rules do not let {sender} publish to {subject}")
        self.sender = sender
        self.subject = subject
