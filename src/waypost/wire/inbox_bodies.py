"""The response to a peek: the pending messages of an inbox, none of which is leased."""

import msgspec

from waypost.wire.http_bodies import Delivered


class PeekedInbox(msgspec.Struct, kw_only=True):
    """Pending messages, the oldest first, and how many are `pending` and `leased` in all.

    `unreadable` lists messages with a damaged payload, each with the damage.
    """

    subject: str
    messages: list[Delivered]
    pending: int
    leased: int
    unreadable: list[str] = []
