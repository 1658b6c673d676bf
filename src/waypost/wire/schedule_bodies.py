"""HTTP bodies about scheduled messages: their list, and the cancellation of some."""

from datetime import datetime

import msgspec

from waypost.wire.http_bodies import Ids, RequestBody


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


class ScheduledList(msgspec.Struct, kw_only=True):
    """Scheduled messages, those due first at the beginning; `more`: there are further ones."""

    messages: list[ScheduledMessage]
    more: bool = False


class CancelRequest(RequestBody, kw_only=True):
    """The ids of scheduled messages to cancel."""

    ids: Ids


class CancelResponse(msgspec.Struct, kw_only=True):
    """The ids of messages that were cancelled, and of those that were not: they are unknown, not
    the caller's, or due already."""

    cancelled: list[str]
    not_cancelled: list[str]
