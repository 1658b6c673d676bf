"""Names that belong to the relay itself: those whose first character is an underscore.

Agents can neither speak as them nor write to them.
"""

from typing import Final

from waypost.policy.errors import InvalidMessage

RESERVED_PREFIX: Final = "_"

RELAY: Final = "_relay"
"""Who sends what the relay itself has to say, such as kept confirmations."""

ANONYMOUS: Final = "_anonymous"
"""Whoever did not say who they are. One name for all of them, so one quota too."""

OPERATOR: Final = "_operator"
"""Whoever holds the operator's token, when they send something."""


def is_reserved(subject: str) -> bool:
    """Whether `subject` (or pattern) is one of the relay's own."""
    return subject.startswith(RESERVED_PREFIX)


def reject_reserved(*names: str | None) -> None:
    """Raise `InvalidMessage` if one of `names`, given by an agent, is one of the relay's own."""
    for name in names:
        if name is not None and is_reserved(name):
            raise InvalidMessage(f"{name!r:.80}: names that begin with '_' belong to the relay")
