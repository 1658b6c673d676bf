"""Why somebody is not let in, and what keeps identities from being looked after.

WaypostError
└── IdentityError
    ├── NotAuthenticated      the proof does not hold; never says in which part
    ├── SubjectTaken          the subject is bound to another key
    ├── TooManyIdentities     no further subject can be bound
    ├── IdentitiesDamaged     identities.jsonl cannot be trusted; the relay must not start
    ├── IdentitiesNotSaved    a binding could not be made durable, so it does not hold
    └── SecretUnusable        a secret's file is open to others, or holds no secret
"""

from waypost.policy.errors import WaypostError


class IdentityError(WaypostError):
    """Base of what can go wrong with identities."""


class NotAuthenticated(IdentityError):
    """The proof does not hold."""

    def __init__(self) -> None:
        super().__init__("not authenticated: ask for a new challenge and sign it with your key")


class SubjectTaken(IdentityError):
    """The subject is bound to another key."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject} belongs to another key; choose another subject")
        self.subject = subject


class TooManyIdentities(IdentityError):
    """No further subject can be bound."""


class IdentitiesDamaged(IdentityError):
    """The file of bindings cannot be trusted: going on could give a name to somebody else."""


class IdentitiesNotSaved(IdentityError):
    """A binding could not be made durable, so it does not hold."""


class SecretUnusable(IdentityError):
    """The file of a secret can be read by others, or does not hold one."""
