"""Dead letters: messages that could not be delivered, kept with the reason."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from waypost.policy.budgets import Budget
from waypost.relay.data_dir import endpoint_hash
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import RelayError
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Message
from waypost.relay.state.payloads import PayloadStore
from waypost.relay.state.relay_state import RelayState
from waypost.wire.envelopes import Envelope, instant


class DeadLetter(msgspec.Struct, frozen=True):
    """One dead letter of one endpoint."""

    envelope: Envelope
    reason: str
    failed_at: datetime
    endpoint: str
    endpoint_hash: str


class DeadLetterGroup(msgspec.Struct, frozen=True):
    """Dead letters with the same endpoint and reason."""

    endpoint: str
    reason: str
    count: int
    first_failed_at: datetime
    last_failed_at: datetime
    ids: list[str]


class DeadLetters:
    """Lists, groups, redrives and purges dead letters."""

    def __init__(self, ledger: Ledger, transitions: Transitions, payloads: PayloadStore) -> None:
        self._ledger = ledger
        self._transitions = transitions
        self._payloads = payloads

    def listing(self, subject: str | None, limit: int | None = None) -> list[DeadLetter]:
        """Return at most `limit` dead letters, of one endpoint or all, the oldest first."""
        return list_dead_letters(self._ledger.state, self._payloads, subject, limit)

    def group(self, subject: str | None) -> list[DeadLetterGroup]:
        """Return dead letters grouped by endpoint and reason, the largest group first."""
        return group_dead_letters(self._ledger.state, subject)

    def redrive(self, ids: str | Iterable[str], subject: str | None) -> int:
        """Put dead letters back at the end of their queues; return how many.

        No check is repeated, not even that of the budget, because an operator decided; the time
        to live still holds. An unreadable dead letter is not redriven.
        """
        wanted = {ids} if isinstance(ids, str) else set(ids)
        found = [
            message
            for message in find_dead(self._ledger.state, subject)
            if message.id in wanted and not _unreadable(self._payloads, message)
        ]
        for message in found:
            self._transitions.redrive(message)
        return len(found)

    def purge(self, older_than: datetime | timedelta | None, subject: str | None) -> int:
        """Purge dead letters older than an instant or a duration, or all; return how many."""
        before_us = None
        if isinstance(older_than, timedelta):
            before_us = self._ledger.now_us() - older_than // timedelta(microseconds=1)
        elif older_than is not None:
            before_us = int(older_than.timestamp() * 1_000_000)
        return self.purge_before(before_us, subject, "purged")

    def purge_before(self, before_us: int | None, subject: str | None, reason: str) -> int:
        """Purge dead letters that failed before `before_us`, or all; return how many."""
        found = find_dead(self._ledger.state, subject, before_us)
        for message in found:
            self._transitions.purge(message, reason)
        return len(found)


def list_dead_letters(
    state: RelayState, payloads: PayloadStore, subject: str | None = None, limit: int | None = None
) -> list[DeadLetter]:
    """Return at most `limit` dead letters, of one endpoint or all, the oldest failure first.

    One whose payload is damaged is listed without it, with the damage in its reason.
    """
    return [_dead_letter(payloads, message) for message in find_dead(state, subject)[:limit]]


def group_dead_letters(state: RelayState, subject: str | None = None) -> list[DeadLetterGroup]:
    """Group dead letters by endpoint and reason, the largest group first."""
    groups: dict[tuple[str, str], list[Message]] = {}
    for message in find_dead(state, subject):
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


def find_dead(
    state: RelayState, subject: str | None = None, older_than_us: int | None = None
) -> list[Message]:
    """Return dead messages of one endpoint or all, the oldest failure first."""
    chosen = state.mailboxes.values() if subject is None else [state.mailboxes.get(subject)]
    dead = [
        message
        for mailbox in chosen
        if mailbox is not None
        for message in mailbox.dead.values()
        if older_than_us is None or message.failed_at_us < older_than_us
    ]
    return sorted(dead, key=lambda message: (message.failed_at_us, message.order))


def _dead_letter(payloads: PayloadStore, message: Message) -> DeadLetter:
    problem = _unreadable(payloads, message)
    reason = f"{message.reason} (payload lost: {problem})" if problem else message.reason
    envelope = _header(message) if problem else payloads.decoded_envelope(message)
    failed_at = instant(message.failed_at_us)
    hash_ = endpoint_hash(message.endpoint)
    return DeadLetter(envelope, reason, failed_at, message.endpoint, hash_)


def _header(message: Message) -> Envelope:
    return Envelope(
        id=message.id,
        subject=message.endpoint,
        sender=message.sender,
        budget=Budget(ttl=message.ttl),
        created_at=instant(message.at_us),
    )


def _unreadable(payloads: PayloadStore, message: Message) -> str:
    """Return why a message cannot be read, or ""."""
    try:
        payloads.stored_envelope(message)
    except (RelayError, OSError) as problem:
        return str(problem)
    return ""
