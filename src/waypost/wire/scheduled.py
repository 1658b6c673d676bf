"""A scheduled message, as its sender and the operator see it."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from waypost.policy.subjects import is_literal


class ScheduledMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message from `sender` that is due at `deliver_at`; `size` is in bytes.

    `subject` is what it was published to, `endpoint` the mailbox that holds it. A served relay does
    not show its sender which endpoints match a pattern: the endpoint is the pattern then.
    """

    id: str
    sender: str
    subject: str
    endpoint: str
    size: int
    accepted_at: datetime
    deliver_at: datetime


def without_endpoints(messages: Iterable[ScheduledMessage]) -> list[ScheduledMessage]:
    """Return messages as their sender sees them: without the endpoints of a pattern, each once."""
    shown: dict[str, ScheduledMessage] = {}
    for one in messages:
        endpoint = one.endpoint if is_literal(one.subject) else one.subject
        shown.setdefault(one.id, msgspec.structs.replace(one, endpoint=endpoint))
    return list(shown.values())
