"""Dead letters: messages that could not be delivered, kept with their reason."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from waypost.relay.bodies import Bodies
from waypost.relay.ledger import Ledger
from waypost.relay.mailbox import Message
from waypost.relay.movements import Movements
from waypost.wire.envelopes import Envelope, instant


class DeadLetter(msgspec.Struct, frozen=True):
    """One dead letter of one endpoint."""

    envelope: Envelope
    reason: str
    failed_at: datetime
    endpoint: str
    endpoint_hash: str


class DeadLetterGroup(msgspec.Struct, frozen=True):
    """Dead letters of one endpoint with one reason."""

    endpoint: str
    reason: str
    count: int
    first_failed_at: datetime
    last_failed_at: datetime
    ids: list[str]


class DeadLetters:
    """Lists, groups, redrives and purges."""

    def __init__(self, ledger: Ledger, movements: Movements, bodies: Bodies) -> None:
        self._ledger = ledger
        self._movements = movements
        self._bodies = bodies

    def __len__(self) -> int:
        return sum(len(mailbox.dead) for mailbox in self._ledger.state.mailboxes.values())

    def listing(self, subject: str | None) -> list[DeadLetter]:
        """Dead letters of one endpoint or all, the oldest failure first."""
        return [
            DeadLetter(
                self._bodies.delivered(message),
                message.reason,
                instant(message.failed_at_us),
                message.endpoint,
                self._ledger.state.mailboxes[message.endpoint].hash,
            )
            for message in self._find(subject)
        ]

    def group(self, subject: str | None) -> list[DeadLetterGroup]:
        """The same by endpoint and reason, the largest group first."""
        groups: dict[tuple[str, str], list[Message]] = {}
        for message in self._find(subject):
            groups.setdefault((message.endpoint, message.reason), []).append(message)
        found = [
            DeadLetterGroup(
                endpoint,
                reason,
                len(messages),
                instant(messages[0].failed_at_us),
                instant(messages[-1].failed_at_us),
                [message.id for message in messages],
            )
            for (endpoint, reason), messages in groups.items()
        ]
        return sorted(found, key=lambda one: -one.count)

    def redrive(self, ids: str | Iterable[str], subject: str | None) -> int:
        """Put dead letters back into their mailboxes; returns how many were found.

        A person has decided: no check is repeated, and a budget that stopped the message before
        does not stop it now. Its time to live still holds.
        """
        wanted = {ids} if isinstance(ids, str) else set(ids)
        found = [message for message in self._find(subject) if message.id in wanted]
        for message in found:
            self._movements.redrive(message)
        return len(found)

    def purge(self, older_than_us: int | None, subject: str | None, reason: str) -> int:
        """Throw away dead letters that failed before `older_than_us`, or all."""
        found = [
            message
            for message in self._find(subject)
            if older_than_us is None or message.failed_at_us < older_than_us
        ]
        for message in found:
            self._movements.purge(message, reason)
        return len(found)

    def _find(self, subject: str | None) -> list[Message]:
        mailboxes = self._ledger.state.mailboxes
        chosen = mailboxes.values() if subject is None else [mailboxes.get(subject)]
        dead = [m for mailbox in chosen if mailbox is not None for m in mailbox.dead.values()]
        return sorted(dead, key=lambda message: (message.failed_at_us, message.order))
