"""Response bodies of the HTTP interface about the past: histories of messages, and threads."""

import msgspec


class HistoryItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One event of a message: time (µs), kind, mailbox, description.

    `seq` is its journal number, for the operator only.
    """

    at_us: int
    kind: str
    endpoint: str = ""
    text: str = ""
    seq: int = 0


class MessageHistoryResponse(msgspec.Struct, kw_only=True):
    """The history of a message, as far as the caller may see it; `thread` is its conversation.

    The operator also gets its `parent`, and its `payload` unless that is large.
    """

    message_id: str
    steps: list[HistoryItem]
    thread: str = ""
    parent: str | msgspec.UnsetType | None = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ThreadMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a thread at one endpoint, at `at_us` (µs).

    `answer`: it went back to who asked. `calls_left` is that on arrival, before its own delivery.
    `outcome` is scheduled, pending, leased, acked, expired, cancelled, dead, purged, rejected or
    gone, for a `reason`.
    """

    id: str
    at_us: int
    sender: str
    endpoint: str
    parent: str | None = None
    answer: bool = False
    calls_left: int
    outcome: str
    reason: str = ""


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a conversation in order, as far as the caller may see them.

    `more`: there are further ones than those shown.
    """

    thread: str
    messages: list[ThreadMessage]
    more: bool = False
