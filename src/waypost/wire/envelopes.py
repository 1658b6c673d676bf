"""The envelope: header and payload of one message, as delivered and as stored in a file."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from waypost.policy.budgets import Budget

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _none() -> None:
    return None


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message. `subject` is the subject or pattern it was published to.

    A reply or follow-up published with `parent=envelope` inherits the rest of `budget`, and
    `thread`: the id of the conversation. `answer`: it returns to who asked, so that its budget has
    the hops and the chain of before the question. `attempt` is the number of this delivery, from 1;
    of a message that is only shown, that of the next.

    In a file, `thread` is omitted if it is the message's own id, and `attempt` always.
    """

    id: str
    subject: str
    sender: str
    reply_to: str | None = msgspec.field(default_factory=_none)  # encoded even if None
    thread: str = ""
    answer: bool = False
    attempt: int = 1
    budget: Budget
    created_at: datetime
    payload: Any = msgspec.field(default_factory=_none)


class HasHeader(Protocol):
    """The envelope fields of an arrival in the journal."""

    id: str
    thread: str
    subject: str
    sender: str
    reply_to: str | None
    answer: bool
    at_us: int


def instant(at_us: int) -> datetime:
    """Return microseconds since the epoch as an aware UTC datetime."""
    return _EPOCH + timedelta(0, at_us // 1_000_000, at_us % 1_000_000)


def stored_size(header: HasHeader, budget: Budget, endpoint: str, payload_bytes: int) -> int:
    """Return the length of `encode_envelope` for a delivery to `endpoint`, without encoding.

    Every header field is plain ASCII that JSON does not escape; `thread` is empty if it is the
    message's own id. `budget` is the budget on arrival; the size accounts for what the delivery
    spends of it.
    """
    size = _FIXED_BYTES + payload_bytes + len(header.id) + len(header.subject) + len(header.sender)
    reply_to, hops = header.reply_to, budget.hop_count
    size += 4 if reply_to is None else len(reply_to) + 2
    for ancestor in budget.ancestor_chain:
        size += len(ancestor) + 3
    if header.answer:
        size += len(',"answer":true') - (1 if budget.ancestor_chain else 0)
    else:
        size += len(endpoint) + 2
        hops += 1
    if header.thread:
        size += len(',"thread":""') + len(header.thread)
    size += _digits(hops, budget.max_hops, budget.call_budget_remaining)
    ttl = budget.ttl
    size += 13 if _THIRTEEN_DIGITS_MIN <= ttl < _FOURTEEN_DIGITS_MIN else len(str(ttl))
    return size if header.at_us % 1_000_000 else size - len(".000000")


@lru_cache(maxsize=4096)
def _digits(hop_count: int, max_hops: int, calls: int) -> int:
    """Return the digits of the three counters after a delivery with `hop_count`; cached, because
    few values occur."""
    return len(f"{hop_count}{max_hops}{max(0, calls - 1)}")


_THIRTEEN_DIGITS_MIN, _FOURTEEN_DIGITS_MIN = 10**12, 10**13
"""As milliseconds: from 2001 to 2286."""

encode_envelope = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Envelope).decode


def decode_envelope(content: bytes) -> Envelope:
    """Return the envelope in a file, with its thread."""
    envelope = _decode(content)
    return envelope if envelope.thread else msgspec.structs.replace(envelope, thread=envelope.id)


_FIXED_BYTES = len(
    b'{"id":"","subject":"","sender":"","reply_to":,"budget":{"hop_count":,"max_hops":,'
    b'"ancestor_chain":[],"ttl":,"call_budget_remaining":},'
    b'"created_at":"2026-01-01T00:00:00.000000Z","payload":}'
)
