"""Messages delivered to this agent, and whether they were read and acknowledged.

Rule 1  A message stays here, and so in its mailbox, until it is acknowledged.
Rule 2  It is unread until its whole text was shown. Read or unread, it can be shown again.
Rule 3  An acknowledged message can still be answered for a while: its budget is remembered, so that
        the answer belongs to the same conversation.

No I/O. Bounded: the relay limits how many messages run ahead of their acks, and the memory of
acknowledged messages is limited here.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from waypost.client.message import Message
from waypost.mcp.rendering import message_block_bytes, readable
from waypost.policy.subjects import matches_pattern
from waypost.wire.envelopes import Envelope

T = TypeVar("T")

ANSWERABLE_MAX = 1000
CONTACTS_MAX = 1000


class CachedMessage(msgspec.Struct):
    """A message and its text; `size` is the size of its whole block, in bytes."""

    message: Message
    text: str
    size: int
    is_read: bool = False


class AckResult(msgspec.Struct):
    """Ids to acknowledge, by outcome."""

    acked: list[str]
    acked_before: list[str]
    unknown: list[str]


class InboxCache:
    """The delivered messages of one agent. On one event loop."""

    def __init__(self) -> None:
        self._messages: dict[str, CachedMessage] = {}
        self._acked: dict[str, Envelope] = {}
        self._contacts: dict[str, None] = {}
        self._changed = asyncio.Event()
        self.is_synced = False
        """Whether all messages stored at connection time have been fetched, within the limits."""

    def add(self, messages: Iterable[Message]) -> None:
        """Add delivered messages."""
        for message in messages:
            text = readable(message.problem or message.payload)
            size = message_block_bytes(message, text)
            self._messages[message.id] = CachedMessage(message, text, size)
            self.add_contact(message.sender)
        self._changed.set()

    def mark_synced(self) -> None:
        """Record that the relay has no more stored messages for now."""
        self.is_synced = True
        self._changed.set()

    def reset(self) -> None:
        """Drop all messages on a new connection: the relay delivers unacked ones again."""
        self._messages.clear()
        self.is_synced = False

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, message_id: str) -> CachedMessage | None:
        """Return an unacknowledged message."""
        return self._messages.get(message_id)

    def all(self) -> list[CachedMessage]:
        """Return all unacknowledged messages, in the order of arrival."""
        return list(self._messages.values())

    def unread(self) -> list[CachedMessage]:
        """Return the unread messages, in the order of arrival."""
        return [one for one in self._messages.values() if not one.is_read]

    def read(self) -> list[CachedMessage]:
        """Return the messages that are read and not acknowledged."""
        return [one for one in self._messages.values() if one.is_read]

    def find_parent(self, message_id: str) -> Envelope | None:
        """Return a message that can be answered: unacknowledged, or acknowledged lately."""
        cached = self._messages.get(message_id)
        return cached.message.envelope if cached is not None else self._acked.get(message_id)

    def find_reply(self, request_id: str, recipient: str) -> CachedMessage | None:
        """Return the reply to `request_id` from `recipient` (a subject or pattern)."""
        for cached in self._messages.values():
            message = cached.message
            if message.parent == request_id and matches_pattern(message.sender, recipient):
                return cached
        return None

    def ack(self, ids: Iterable[str]) -> AckResult:
        """Acknowledge messages: they leave the mailbox."""
        result = AckResult([], [], [])
        for message_id in dict.fromkeys(ids):
            cached = self._messages.pop(message_id, None)
            if cached is not None:
                cached.message.ack_nowait()
                self._acked[message_id] = msgspec.structs.replace(
                    cached.message.envelope, payload=None
                )
                result.acked.append(message_id)
            elif message_id in self._acked:
                result.acked_before.append(message_id)
            else:
                result.unknown.append(message_id)
        while len(self._acked) > ANSWERABLE_MAX:
            del self._acked[next(iter(self._acked))]
        self._changed.set()
        return result

    def add_contact(self, subject: str) -> None:
        """Record that this agent sent to `subject` or received from it."""
        self._contacts.pop(subject, None)
        self._contacts[subject] = None
        if len(self._contacts) > CONTACTS_MAX:
            del self._contacts[next(iter(self._contacts))]

    def contacts(self) -> list[str]:
        """Return the contacts since this process began, by name."""
        return sorted(self._contacts)

    async def wait_for(self, find: Callable[[], T | None], wait_s: float) -> T | None:
        """Return the result of `find` as soon as it is not None; None after `wait_s` seconds."""
        try:
            async with asyncio.timeout(wait_s):
                while (found := find()) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return found
        except TimeoutError:
            return None
