"""What was delivered to this agent, and what it did with it.

Rule 1  A message stays here, and so in its mailbox, until it is acknowledged.
Rule 2  It is unread until its whole text was shown. Read or unread, it can be shown again.
Rule 3  What was acknowledged can still be answered for a while: its budget is remembered, so that
        an answer after the acknowledgement is part of the same conversation.

No I/O. Bounded: the relay lets only so much run ahead of its confirmations, and what is
remembered is bounded here.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from waypost.client.message import Message
from waypost.mcp.blocks import block_bytes
from waypost.mcp.rendering import readable
from waypost.policy.subjects import matches_pattern
from waypost.wire.envelopes import Envelope

T = TypeVar("T")

ANSWERABLE_MAX = 1000
CONTACTS_MAX = 1000


class Held(msgspec.Struct):
    """One message, as text; `size` is what showing all of it takes, in bytes."""

    message: Message
    text: str
    size: int
    is_read: bool = False


class Acked(msgspec.Struct):
    """What became of ids that were to be acknowledged."""

    done: list[str]
    before: list[str]
    unknown: list[str]


class Desk:
    """The messages of one agent. On one event loop."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._done: dict[str, Envelope] = {}
        self._contacts: dict[str, None] = {}
        self._changed = asyncio.Event()
        self.is_caught_up = False
        """Whether all that was stored when the agent connected is here, as far as it may be."""

    def put(self, messages: Iterable[Message]) -> None:
        """These were delivered."""
        for message in messages:
            text = readable(message.problem or message.payload)
            self._held[message.id] = Held(message, text, block_bytes(message, text))
            self.note_contact(message.sender)
        self._changed.set()

    def caught_up(self) -> None:
        """Nothing more is stored at the moment."""
        self.is_caught_up = True
        self._changed.set()

    def begin_anew(self) -> None:
        """A new connection: everything that was not acknowledged will come again."""
        self._held.clear()
        self.is_caught_up = False

    def __len__(self) -> int:
        return len(self._held)

    def get(self, message_id: str) -> Held | None:
        """A message that is not acknowledged yet."""
        return self._held.get(message_id)

    def all(self) -> list[Held]:
        """Everything that is not acknowledged yet, in the order of arrival."""
        return list(self._held.values())

    def unread(self) -> list[Held]:
        """In the order of arrival."""
        return [one for one in self._held.values() if not one.is_read]

    def read(self) -> list[Held]:
        """Shown, and not acknowledged yet."""
        return [one for one in self._held.values() if one.is_read]

    def answerable(self, message_id: str) -> Envelope | None:
        """A message that can be answered: here, or acknowledged not long ago."""
        held = self._held.get(message_id)
        return held.message.envelope if held is not None else self._done.get(message_id)

    def reply_to(self, request_id: str, asked: str) -> Held | None:
        """The message that answers `request_id`, from whoever was asked."""
        for held in self._held.values():
            message = held.message
            if message.parent == request_id and matches_pattern(message.sender, asked):
                return held
        return None

    def ack(self, ids: Iterable[str]) -> Acked:
        """These are done with: they may leave the mailbox."""
        acked = Acked([], [], [])
        for message_id in dict.fromkeys(ids):
            held = self._held.pop(message_id, None)
            if held is not None:
                held.message.ack_nowait()
                self._done[message_id] = msgspec.structs.replace(
                    held.message.envelope, payload=None
                )
                acked.done.append(message_id)
            elif message_id in self._done:
                acked.before.append(message_id)
            else:
                acked.unknown.append(message_id)
        while len(self._done) > ANSWERABLE_MAX:
            del self._done[next(iter(self._done))]
        self._changed.set()
        return acked

    def note_contact(self, subject: str) -> None:
        """This agent has written to `subject`, or heard from it."""
        self._contacts.pop(subject, None)
        self._contacts[subject] = None
        if len(self._contacts) > CONTACTS_MAX:
            del self._contacts[next(iter(self._contacts))]

    def contacts(self) -> list[str]:
        """Whom it wrote to or heard from since this process began, by name."""
        return sorted(self._contacts)

    async def until(self, wanted: Callable[[], T | None], wait_s: float) -> T | None:
        """What `wanted` gives, as soon as it is something; None after `wait_s` seconds."""
        try:
            async with asyncio.timeout(wait_s):
                while (found := wanted()) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return found
        except TimeoutError:
            return None
