"""Lists and groups of dead letters, for an open relay or a snapshot."""

import heapq
from datetime import datetime

import msgspec

from waypost.policy.budgets import Budget
from waypost.policy.reasons import reason_kind
from waypost.relay.inspection.paging import Cursor, cursor_text
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


class DeadLetterPage(msgspec.Struct, frozen=True):
    """Some dead letters; the next page is after the cursor `next`, empty if there is none."""

    dead_letters: list[DeadLetter]
    next: str


class DeadLetterGroup(msgspec.Struct, frozen=True):
    """The dead letters of one endpoint with the same kind of reason, without the error texts."""

    endpoint: str
    reason: str
    count: int
    first_failed_at: datetime
    last_failed_at: datetime
    ids: list[str]


def list_dead_letters(
    state: RelayState, payloads: PayloadStore, subject: str | None = None, limit: int | None = None
) -> list[DeadLetter]:
    """Return dead letters of one endpoint or all, the oldest failure first, at most `limit`.

    One with a damaged payload is listed without it; its reason names the damage.
    """
    found = state.dead_messages(subject)[:limit]
    return [_dead_letter(payloads, one, state.mailboxes[one.endpoint].hash) for one in found]


def page_dead_letters(
    state: RelayState,
    payloads: PayloadStore,
    limit: int,
    subject: str | None,
    kind: str | None,
    after: Cursor,
) -> DeadLetterPage:
    """Return the dead letters after a cursor, the oldest failure first, at most `limit`.

    With `kind`, only those with this kind of reason.
    """
    found = [
        one
        for one in state.dead_messages(subject)
        if _cursor(one) > after and (kind is None or reason_kind(one.reason) == kind)
    ]
    shown = heapq.nsmallest(limit, found, key=_cursor)
    following = cursor_text(_cursor(shown[-1])) if len(found) > len(shown) else ""
    listed = [_dead_letter(payloads, one, state.mailboxes[one.endpoint].hash) for one in shown]
    return DeadLetterPage(listed, following)


def _cursor(message: Message) -> Cursor:
    return message.failed_at_us, message.order


def group_dead_letters(state: RelayState, subject: str | None = None) -> list[DeadLetterGroup]:
    """Return dead letters grouped by endpoint and kind of reason, the largest group first."""
    groups: dict[tuple[str, str], list[Message]] = {}
    for message in state.dead_messages(subject):
        groups.setdefault((message.endpoint, reason_kind(message.reason)), []).append(message)
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


def _dead_letter(payloads: PayloadStore, message: Message, hash_: str) -> DeadLetter:
    problem = payloads.read_problem(message)
    reason = f"{message.reason} (payload lost: {problem})" if problem else message.reason
    envelope = _header(message) if problem else payloads.decoded_envelope(message)
    failed_at = instant(message.failed_at_us)
    return DeadLetter(envelope, reason, failed_at, message.endpoint, hash_)


def _header(message: Message) -> Envelope:
    return Envelope(
        id=message.id,
        subject=message.endpoint,
        sender=message.sender,
        budget=Budget(ttl=message.ttl),
        created_at=instant(message.at_us),
    )
