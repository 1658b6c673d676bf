"""Scheduled messages, listed for their senders and the operator."""

import heapq

from waypost.relay.errors import RelayError
from waypost.relay.state.mailbox import Message
from waypost.relay.state.payloads import PayloadStore
from waypost.relay.state.relay_state import RelayState
from waypost.wire.envelopes import instant
from waypost.wire.scheduled import ScheduledMessage


def list_scheduled(
    state: RelayState, payloads: PayloadStore, sender: str | None, limit: int | None = None
) -> list[ScheduledMessage]:
    """Return scheduled messages of one sender, or all: those due first, at most `limit`."""
    found = state.scheduled.of(sender)
    chosen = sorted(found, key=_due) if limit is None else heapq.nsmallest(limit, found, key=_due)
    return [
        ScheduledMessage(
            id=message.id,
            sender=message.sender,
            subject=_subject(message, payloads),
            endpoint=message.endpoint,
            size=message.size,
            accepted_at=instant(message.at_us),
            deliver_at=instant(message.due_us),
        )
        for message in chosen
    ]


def _due(message: Message) -> tuple[int, int]:
    return message.due_us, message.order


def _subject(message: Message, payloads: PayloadStore) -> str:
    """Return what a message was published to; empty if its line in the journal is damaged."""
    if message.arrival is not None:
        return message.arrival.subject
    try:
        return payloads.read_arrival(message.location).subject
    except (RelayError, OSError):
        return ""
