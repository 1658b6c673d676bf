"""HTTP bodies about scheduled messages: their list, and the cancellation of some."""

import msgspec

from waypost.wire.http_bodies import Ids, RequestBody
from waypost.wire.scheduled import ScheduledMessage


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
