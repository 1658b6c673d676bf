"""What can go wrong for a caller, as exceptions. Expected refusals are values, not exceptions.

WaypostError
├── InvalidInput
│   ├── InvalidSubject      not a subject, or not a pattern
│   ├── InvalidMessage      payload, budget or message id that cannot be taken
│   ├── InvalidSettings     a setting out of range, or of the wrong kind
│   └── InvalidRule         an access rule that cannot be taken
├── AccessDenied            no matching endpoint may be reached by this sender
└── RelayError              (relay/errors.py) the runtime cannot do what was asked
"""


class WaypostError(Exception):
    """Base of every exception raised on purpose by this package."""


class InvalidInput(WaypostError, ValueError):
    """The caller gave something that can never be accepted."""


class InvalidSubject(InvalidInput):
    """Not a valid subject or pattern."""


class InvalidMessage(InvalidInput):
    """A payload, budget or message id that cannot be taken."""


class InvalidSettings(InvalidInput):
    """A setting out of range or of the wrong kind."""


class InvalidRule(InvalidInput):
    """An access rule that cannot be taken."""


class AccessDenied(WaypostError):
    """Access rules leave nothing of what the publish was addressed to."""

    def __init__(self, sender: str, subject: str) -> None:
        super().__init__(f"access rules do not let {sender} publish to {subject}")
        self.sender = sender
        self.subject = subject
