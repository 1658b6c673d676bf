"""Errors of authentication, and of the files that hold identities and secrets.

WaypostError
└── IdentityError
    ├── NotAuthenticated      the proof is invalid; the text never names the invalid part
    ├── SubjectTaken          the subject is bound to another key
    ├── TooManyIdentities     no further subject can be bound
    ├── IdentitiesDamaged     identities.jsonl cannot be trusted; the relay must not start
    ├── IdentitiesNotSaved    a binding could not be made durable, so it is not valid
    └── SecretUnusable        the file of a secret is accessible to others, or has no valid secret
"""

from waypost.policy.errors import WaypostError


class IdentityError(WaypostError):
    """The base of all errors of identity."""


class NotAuthenticated(IdentityError):
    """The proof is invalid."""

    def __init__(self) -> None:
        super().__init__("not authenticated: request a new challenge and sign it with your key")


class SubjectTaken(IdentityError):
    """The subject is bound to another key."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject} belongs to another key; choose another subject")
        self.subject = subject


class TooManyIdentities(IdentityError):
    """No further subject can be bound."""


class IdentitiesDamaged(IdentityError):
    """The file of bindings cannot be trusted: a subject could go to another key."""


class IdentitiesNotSaved(IdentityError):
    """A binding could not be made durable, so it is not valid."""


class SecretUnusable(IdentityError):
    """The file of a secret is accessible to others, or contains no valid secret."""
