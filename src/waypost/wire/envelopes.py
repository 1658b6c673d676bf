"""The envelope: header and payload of one message, as a consumer gets it and a file holds it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from waypost.policy.budgets import Budget

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `subject` is what it was published to, `budget` what it may still do.

    A reply or a follow-up published with `parent=envelope` inherits the budget.
    """

    id: str
    subject: str
    sender: str
    reply_to: str | None = None
    budget: Budget
    created_at: datetime
    payload: Any = None


def instant(at_us: int) -> datetime:
    """Microseconds since the epoch as an aware UTC datetime."""
    return _EPOCH + timedelta(microseconds=at_us)


encode_envelope = msgspec.json.Encoder().encode
decode_envelope = msgspec.json.Decoder(Envelope).decode
