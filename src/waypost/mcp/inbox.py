"""Messages delivered to this agent, and whether they were read and acknowledged.

Rule 1  A message stays here, and so in its mailbox, until it is acknowledged. Its lease is kept
        meanwhile. A model that makes no calls for a long time loses its messages to the mailbox,
        and gets them again with the next call.
Rule 2  It is unread until its whole text was shown. Read or unread, it can be shown again.
Rule 3  An id that another agent chose is replaced by a number of this process, because it may be a
        sentence. Both name the message, or the thread, in the tools.
Rule 4  An acknowledged message can still be answered for a while: its budget is remembered, so that
        the answer belongs to the same conversation.

No I/O. Bounded: the relay limits how many messages run ahead of their acks, and if it does not, no
more are fetched while the cache `is_full`. The memory of acknowledged messages is limited here.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from waypost.client.message import Message
from waypost.mcp.fencing import Labels, message_block_bytes, readable
from waypost.mcp.quoting import is_plain_id
from waypost.policy.subjects import matches_pattern
from waypost.wire.envelopes import Envelope
from waypost.wire.frames import RequestFailure

T = TypeVar("T")

ANSWERABLE_MAX = 1000
CONTACTS_MAX = 1000
UNACKED_MAX_MESSAGES = 5000
UNACKED_MAX_BYTES = 16 * 1024 * 1024
"""Many more than a relay delivers ahead of acks."""

REFS_MAX = 4 * UNACKED_MAX_MESSAGES
SENT_MAX = 10_000
FAILURES_MAX = 100
REF_PREFIX = "received-"


class CachedMessage(msgspec.Struct):
    """A message, its text and its labels; `size` is the size of its whole block, in bytes."""

    message: Message
    text: str
    labels: Labels
    size: int
    is_read: bool = False

    @property
    def ref(self) -> str:
        """Return what to call the message in place of its id."""
        return self.labels.ref


class AckResult(msgspec.Struct):
    """Refs or ids to acknowledge, by outcome."""

    acked: list[str]
    acked_before: list[str]
    unknown: list[str]


class NackResult(msgspec.Struct):
    """Refs or ids to return, by outcome."""

    returned: list[str]
    unknown: list[str]


class InboxCache:
    """The delivered messages of one agent. On one event loop."""

    def __init__(self) -> None:
        self._messages: dict[str, CachedMessage] = {}
        self._bytes = 0
        self._acked: OrderedDict[str, Envelope] = OrderedDict()
        self._contacts: OrderedDict[str, None] = OrderedDict()
        self._sent: OrderedDict[str, None] = OrderedDict()
        self._begun: OrderedDict[str, None] = OrderedDict()
        self._refs: OrderedDict[str, str] = OrderedDict()
        self._ids: dict[str, str] = {}
        self._ref_count = 0
        self._failures: OrderedDict[str, str] = OrderedDict()
        self._changed = asyncio.Event()
        self.arrivals = 0
        """How many messages have been added, those delivered again included."""
        self.is_synced = False
        """Whether all messages stored at connection time have been fetched, within the limits."""

    def add(self, messages: Iterable[Message]) -> None:
        """Add delivered messages."""
        for message in messages:
            text = readable(message.problem or message.payload)
            labels = self._labels(message)
            size = message_block_bytes(message, text, labels)
            known = self._messages.get(message.id)
            self.arrivals += known is None
            self._bytes += size - (known.size if known is not None else 0)
            self._messages[message.id] = CachedMessage(message, text, labels, size)
            message.keep()
            self.add_contact(message.sender)
        self._changed.set()

    def wake(self) -> None:
        """Have everything that waits for a condition check it again."""
        self._changed.set()

    def mark_synced(self) -> None:
        """Record that the relay has no more stored messages for now."""
        self.is_synced = True
        self._changed.set()

    def release(self) -> None:
        """Return all messages to the mailbox, as not processed."""
        for cached in self._messages.values():
            cached.message.nack_nowait(release=True)
        self.reset()

    def reset(self) -> None:
        """Drop all messages on a new connection: the relay delivers unacked ones again."""
        self._messages.clear()
        self._bytes = 0
        self.is_synced = False

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_full(self) -> bool:
        """Return whether to fetch no more until messages are acknowledged."""
        return len(self._messages) >= UNACKED_MAX_MESSAGES or self._bytes >= UNACKED_MAX_BYTES

    def id_of(self, ref: str) -> str:
        """Return the id of a message by its ref; anything else is an id itself."""
        return self._ids.get(ref, ref)

    def get(self, ref: str) -> CachedMessage | None:
        """Return an unacknowledged message."""
        return self._messages.get(self.id_of(ref))

    def all(self) -> list[CachedMessage]:
        """Return all unacknowledged messages, in the order of arrival."""
        return list(self._messages.values())

    def unread(self) -> list[CachedMessage]:
        """Return the unread messages, in the order of arrival."""
        return [one for one in self._messages.values() if not one.is_read]

    def read(self) -> list[CachedMessage]:
        """Return the messages that are read and not acknowledged."""
        return [one for one in self._messages.values() if one.is_read]

    def find_parent(self, ref: str) -> Envelope | None:
        """Return a message that can be answered: unacknowledged, or acknowledged lately."""
        message_id = self.id_of(ref)
        cached = self._messages.get(message_id)
        return cached.message.envelope if cached is not None else self._acked.get(message_id)

    def find_reply(self, request_id: str, recipient: str) -> CachedMessage | None:
        """Return the reply to `request_id` from `recipient` (a subject or pattern)."""
        for cached in self._messages.values():
            message = cached.message
            if message.parent == request_id and matches_pattern(message.sender, recipient):
                return cached
        return None

    def ack(self, refs: Iterable[str]) -> AckResult:
        """Acknowledge messages: they leave the mailbox."""
        result = AckResult([], [], [])
        for ref in dict.fromkeys(refs):
            message_id = self.id_of(ref)
            cached = self._messages.pop(message_id, None)
            if cached is not None:
                self._bytes -= cached.size
                cached.message.ack_nowait()
                self._acked[message_id] = msgspec.structs.replace(
                    cached.message.envelope, payload=None
                )
                result.acked.append(ref)
            elif message_id in self._acked:
                result.acked_before.append(ref)
            else:
                result.unknown.append(ref)
        while len(self._acked) > ANSWERABLE_MAX:
            self._acked.popitem(last=False)
        self._changed.set()
        return result

    def nack(self, refs: Iterable[str], error: str, delay_s: float) -> NackResult:
        """Return messages that could not be processed: they are delivered again later."""
        result = NackResult([], [])
        for ref in dict.fromkeys(refs):
            cached = self._messages.pop(self.id_of(ref), None)
            if cached is None:
                result.unknown.append(ref)
                continue
            self._bytes -= cached.size
            cached.message.nack_nowait(delay_s, error)
            result.returned.append(ref)
        self._changed.set()
        return result

    def add_contact(self, subject: str) -> None:
        """Record that this agent sent to `subject` or received from it."""
        self._contacts.pop(subject, None)
        self._contacts[subject] = None
        if len(self._contacts) > CONTACTS_MAX:
            self._contacts.popitem(last=False)

    def add_sent(self, message_id: str) -> None:
        """Record the id of a message that this agent sends, to recognize answers to it."""
        self._sent[message_id] = None
        if len(self._sent) > SENT_MAX:
            self._sent.popitem(last=False)

    def add_failure(self, message_id: str, error: str) -> None:
        """Record that the recipient of a request has failed, with `error`."""
        if message_id not in self._sent:
            return  # no relay fills the memory of its agents
        self._failures[message_id] = error
        self._changed.set()
        if len(self._failures) > FAILURES_MAX:
            self._failures.popitem(last=False)

    def take_failure(self, message_id: str) -> RequestFailure | None:
        """Return the failure of a request, once."""
        error = self._failures.pop(message_id, None)
        return None if error is None else RequestFailure(message_id=message_id, error=error)

    def add_begun(self, thread: str) -> None:
        """Record a thread that this agent chose, to call it by that name."""
        self._begun[thread] = None
        if len(self._begun) > SENT_MAX:
            self._begun.popitem(last=False)

    def contacts(self) -> list[str]:
        """Return the contacts since this process began, by name."""
        return sorted(self._contacts)

    def _labels(self, message: Message) -> Labels:
        thread = None if message.thread == message.id else self.ref(message.thread)
        return Labels(self.ref(message.id), self._own(message.parent), thread)

    def _own(self, parent: str | None) -> str | None:
        return parent if parent in self._sent else None

    def ref(self, message_id: str) -> str:
        """Return the id of a message or thread if it can be shown, else its number in this
        process."""
        if is_plain_id(message_id) or message_id in self._sent or message_id in self._begun:
            return message_id
        if message_id not in self._refs:
            self._ref_count += 1
            self._refs[message_id] = f"{REF_PREFIX}{self._ref_count}"
            self._ids[self._refs[message_id]] = message_id
            if len(self._refs) > REFS_MAX:
                _, oldest = self._refs.popitem(last=False)
                del self._ids[oldest]
        return self._refs[message_id]

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
