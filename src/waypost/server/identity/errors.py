"""Errors of authentication, and of the files that hold identities and secrets.

WaypostError
└── IdentityError
    ├── NotAuthenticated      the proof is invalid; the text never names the invalid part
    ├── SubjectTaken          the subject is bound to another key
    ├── KeyRevoked            the key owned the subject once, and cannot use it any more
    ├── NameReserved          only a key that the operator bound may use the subject
    ├── NameNotBound          the subject belongs to no key
    ├── TooManyNames          the key holds as many names as one key may
    ├── TooManyNewNames       too many names were bound within a minute
    ├── TooManyChanges        an agent changed its name too often within a minute
    ├── NewNamesPaused        no name can be bound while the settings are unknown
    ├── TooManyIdentities     no further subject can be bound
    ├── DirectoryClosed       only the operator lists agents
    ├── TooManyCards          no further name can have a card
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

    def __init__(self, subject: str, advice: str = "choose another subject") -> None:
        super().__init__(f"{subject} belongs to another key; {advice}")
        self.subject = subject


class KeyRevoked(IdentityError):
    """The key owned the subject once, and cannot use it any more."""

    def __init__(self, subject: str, public_key: str) -> None:
        super().__init__(
            f"this key no longer owns {subject}: it was rotated or revoked. Use the key file that"
            f" replaced it, or ask the operator to run 'waypost names bind {subject} {public_key}'"
        )
        self.subject = subject


class NameReserved(IdentityError):
    """Only a key that the operator bound may use the subject."""

    def __init__(self, subject: str, public_key: str) -> None:
        super().__init__(
            f"{subject} is reserved: ask the operator to run"
            f" 'waypost names bind {subject} {public_key}'"
        )
        self.subject = subject


class NameNotBound(IdentityError):
    """The subject belongs to no key."""

    def __init__(self, subject: str, advice: str = "'waypost names list' shows all names") -> None:
        super().__init__(f"{subject} is bound to no key; {advice}")
        self.subject = subject


class TooManyNames(IdentityError):
    """The key holds as many names as one key may."""


class TooManyNewNames(IdentityError):
    """Too many names were bound within a minute; try again after `retry_after_ms`."""

    def __init__(self, text: str, retry_after_ms: int) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms


class TooManyChanges(IdentityError):
    """An agent changed its name too often within a minute; try again after `retry_after_ms`."""

    def __init__(self, text: str, retry_after_ms: int) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms


class NewNamesPaused(IdentityError):
    """No name can be bound while the settings are unknown."""

    def __init__(self) -> None:
        super().__init__(
            "no new name can be bound: the config.json of this relay is invalid, so its name"
            " policy is unknown; ask the operator to repair it"
        )


class TooManyIdentities(IdentityError):
    """No further subject can be bound."""


class DirectoryClosed(IdentityError):
    """Only the operator lists agents."""

    def __init__(self) -> None:
        super().__init__("the directory of this relay is closed; ask its operator for names")


class TooManyCards(IdentityError):
    """No further name can have a card."""


class IdentitiesDamaged(IdentityError):
    """The file of bindings cannot be trusted: a subject could go to another key."""


class IdentitiesNotSaved(IdentityError):
    """A binding could not be made durable, so it is not valid."""


class SecretUnusable(IdentityError):
    """The file of a secret is accessible to others, or contains no valid secret."""
