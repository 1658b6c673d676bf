"""What an operator should look at, and rejections by sender: parts of response bodies, as JSON."""

from enum import StrEnum

import msgspec


class FindingKind(StrEnum):
    """What is wrong, in the order in which an operator should look at it."""

    STORAGE_FULL = "storage_full"
    DISK_LOW = "disk_low"
    INBOX_FULL = "inbox_full"
    BREAKER_OPEN = "breaker_open"
    AGENT_STUCK = "agent_stuck"
    SENDER_REJECTED = "sender_rejected"
    INBOX_FILLING = "inbox_filling"
    MESSAGES_OLD = "messages_old"


class OperatorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to look at: a sentence about it, what to do, and the command that does it.

    `subject` is the inbox, agent or sender, empty if it is the relay itself. `command` holds the
    words after `waypost`, without the options that choose the relay. `link` is the address of a
    view of the dashboard, after its URL.
    """

    kind: FindingKind
    subject: str = ""
    text: str
    advice: str
    command: list[str]
    link: str


class SenderRejections(msgspec.Struct, frozen=True, kw_only=True):
    """Recent rejections of one sender, in total and by reason.

    `sender` is empty for all senders that are not listed by themselves.
    """

    sender: str
    total: int
    reasons: dict[str, int]
