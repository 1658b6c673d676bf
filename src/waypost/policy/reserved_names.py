"""Names reserved for the relay: those that start with an underscore.

Agents can neither send as them nor publish to them.
"""

from typing import Final

from waypost.policy.errors import InvalidMessage

RESERVED_PREFIX: Final = "_"

RELAY: Final = "_relay"
"""The sender of the relay's own messages, such as stored confirmations."""

ANONYMOUS: Final = "_anonymous"
"""The sender of all unauthenticated publishes, which therefore share one quota."""

OPERATOR: Final = "_operator"
"""The sender of publishes with the operator's token."""

OUTBOX_PREFIX: Final = "_partition."
"""Begins the names of outboxes: of the messages that wait for the decision of a partition."""


def outbox_of(partition: int) -> str:
    """Return the name of the outbox for the messages to `partition`."""
    return f"{OUTBOX_PREFIX}{partition}"


def is_reserved(subject: str) -> bool:
    """Return whether a subject or pattern is reserved."""
    return subject.startswith(RESERVED_PREFIX)


def reject_reserved(*names: str | None) -> None:
    """Raise `InvalidMessage` if one of `names`, given by an agent, is reserved."""
    for name in names:
        if name is not None and is_reserved(name):
            raise InvalidMessage(f"{name!r:.80}: names that begin with '_' belong to the relay")
