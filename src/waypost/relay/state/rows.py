"""A message as a row of the index's table `messages`, and back."""

from typing import Any

from waypost.relay.journal.segments import Place
from waypost.relay.state.mailbox import DEAD, LEASED, PENDING, Message

_STATUS = {PENDING: "new", LEASED: "cur", DEAD: "failed"}
_STATE = {status: state for state, status in _STATUS.items()}
_COLUMNS = (
    *("order", "endpoint", "id", "state", "sender", "size", "ttl", "at_us"),
    *("segment", "offset", "length"),
    *("attempt", "not_before_us", "via", "reason", "failed_at_us"),
)


def to_row(m: Message) -> tuple[str | int, ...]:
    """The columns of a message, in their order."""
    at = m.place
    # One tuple, not made of several: this runs on the event loop, for every message in it.
    return (
        m.order,
        m.endpoint,
        m.id,
        _STATUS[m.state],
        m.sender,
        m.size,
        m.ttl,
        m.at_us,
        at.segment,
        at.offset,
        at.length,
        m.attempt,
        m.not_before_us,
        m.via,
        m.reason,
        m.failed_at_us,
    )


def from_row(row: tuple[object, ...]) -> Message:
    """The message that a row tells of."""
    fields: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    place = Place(*(fields.pop(name) for name in ("segment", "offset", "length")))
    state = _STATE[fields.pop("state")]
    return Message(place=place, state=state, **fields)
