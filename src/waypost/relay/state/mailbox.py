"""One endpoint's mailbox in memory: scheduled, pending, leased and dead messages.

Rule 1  Messages are delivered by `order`, the seq of the event that queued them.
Rule 2  A message is delivered only after its event is committed.
Rule 3  A returned message keeps its queue position.
Rule 4  A scheduled message counts like a pending one, but is not in the queue until it is due.
"""

from collections import deque
from collections.abc import Iterable
from enum import IntEnum, StrEnum

import msgspec

from waypost.policy.occupancy import Occupancy
from waypost.relay.journal.segments import Location
from waypost.wire.events import Accepted, Forwarded, Rejected

NO_LIMIT = 1 << 62
_STALE_QUEUE_ENTRIES_MAX = 64
_NO_QUEUE: deque["Message"] = deque()
"""The queue of every mailbox before its first message: an empty one takes 0.7 KB. Never filled."""


class MessageState(IntEnum):
    """The state of a message in one mailbox."""

    PENDING = 0
    LEASED = 1
    DEAD = 2
    GONE = 3
    SCHEDULED = 4


PENDING, LEASED, DEAD, GONE, SCHEDULED = MessageState
"""Module-level aliases: attribute access on an Enum class is slow, and this runs per message."""


class DeadLetterCause(StrEnum):
    """What made a message a dead letter."""

    NOT_DEAD = ""
    REJECTED = "rejected"
    FAILED = "failed"
    EVICTED = "evicted"


NOT_DEAD, REJECTED, FAILED, EVICTED = DeadLetterCause


class Message(msgspec.Struct, gc=False):
    """One message in one mailbox. `ttl` is ms since the epoch, `*_us` are µs.

    `tier` is that of its sender on arrival, `cause` that of a dead letter. `due_us` is when it was
    scheduled for, or 0. `arrival` and `content`, its payload as JSON, are cached: None if not.
    """

    id: str
    order: int
    endpoint: str
    sender: str
    size: int
    ttl: int
    at_us: int
    location: Location
    tier: int
    state: MessageState = PENDING
    queued: bool = True
    attempt: int = 0
    until_us: int = 0
    not_before_us: int = 0
    via: str = ""
    reason: str = ""
    failed_at_us: int = 0
    cause: DeadLetterCause = NOT_DEAD
    due_us: int = 0
    arrival: Accepted | Rejected | None = None
    content: bytes | None = None


def message_from_event(event: Accepted | Rejected | Forwarded, location: Location) -> Message:
    """Return the message of an arrival whose line is at `location`."""
    message = Message(
        id=event.id,
        order=event.seq,
        endpoint=event.endpoint,
        sender=event.sender,
        size=event.size,
        ttl=event.budget.ttl,
        at_us=event.at_us,
        location=location,
        tier=event.tier,
    )
    if event.due_us:
        message.due_us = event.due_us
        message.state = SCHEDULED
    return message


class Mailbox:
    """The messages of one endpoint."""

    __slots__ = (
        "dead",
        "earliest_ttl",
        "hash",
        "leased_count",
        "live",
        "occupancy",
        "queue",
        "registered",
        "registered_seq",
        "rejected",
        "scheduled_count",
        "since_us",
        "subject",
    )

    def __init__(self, subject: str, hash_: str) -> None:
        self.subject = subject
        self.hash = hash_
        self.since_us = 0
        self.registered = False
        self.registered_seq = 0
        self.occupancy = Occupancy()
        self.leased_count = 0
        self.scheduled_count = 0
        self.live: dict[str, Message] = {}
        self.dead: dict[str, Message] = {}
        self.rejected = Occupancy()
        """Of the dead letters, those that were rejected on arrival."""
        self.queue = _NO_QUEUE
        self.earliest_ttl = NO_LIMIT
        """No pending message expires before this; it may be too early, never too late."""

    @property
    def empty(self) -> bool:
        """Whether the mailbox holds no message, live or dead."""
        return not self.live and not self.dead

    @property
    def oldest_us(self) -> int | None:
        """The arrival of the first unacknowledged message of the queue, in µs; None without one."""
        for message in self.live.values():
            if message.state is not SCHEDULED:
                return max(message.at_us, message.due_us)
        return None

    def holds(self, message_id: str, now_ms: int) -> bool:
        """Return whether this id is live and not expired; leased messages do not expire."""
        message = self.live.get(message_id)
        return message is not None and (message.state is LEASED or message.ttl >= now_ms)

    def holds_from_other_sender(self, message_id: str, sender: str) -> bool:
        """Return whether this id belongs to a live or dead message of another sender."""
        message = self.live.get(message_id) or self.dead.get(message_id)
        return message is not None and message.sender != sender

    def add(self, message: Message) -> None:
        """Put a new message at the end of the queue, unless it is scheduled."""
        self.live[message.id] = message
        self.occupancy.add(message.sender, message.size, message.tier)
        if message.state is SCHEDULED:
            self.scheduled_count += 1
            message.queued = False
        else:
            if message.state is LEASED:
                self.leased_count += 1
            self._append(message)

    def queue_due(self, message: Message, order: int) -> None:
        """Put a scheduled message at the end of the queue, as of the event `order`."""
        self.scheduled_count -= 1
        self.live[message.id] = self.live.pop(message.id)
        message.order = order
        message.state = PENDING
        message.queued = True
        self._append(message)

    def _append(self, message: Message) -> None:
        """Put a message at the end of the queue."""
        if self.queue is _NO_QUEUE:
            self.queue = deque()
        self.queue.append(message)
        self.earliest_ttl = min(self.earliest_ttl, message.ttl)

    def requeue(self, message: Message) -> None:
        """Return a leased message to its queue position."""
        if message.state is LEASED:
            self.leased_count -= 1
        message.state = PENDING
        self.earliest_ttl = min(self.earliest_ttl, message.ttl)
        if message.queued:
            return
        message.queued = True
        if not self.queue or message.order < self.queue[0].order:
            self.queue.appendleft(message)
            return
        position = next(
            (at for at, other in enumerate(self.queue) if other.order > message.order),
            len(self.queue),
        )
        self.queue.insert(position, message)

    def remove(self, message: Message) -> None:
        """Remove a live message."""
        self.remove_all((message.id,))

    def remove_all(self, ids: Iterable[str]) -> list[Message]:
        """Remove the live messages with these ids, and return them."""
        live, removed, is_queued = self.live, list[Message](), False
        for message_id in ids:
            message = live.pop(message_id, None)
            if message is None:
                continue
            if message.state is LEASED:
                self.leased_count -= 1
            elif message.state is SCHEDULED:
                self.scheduled_count -= 1
            message.state = GONE
            is_queued = is_queued or message.queued
            removed.append(message)
        self.occupancy.remove_all(removed)
        if is_queued and len(self.queue) > 2 * len(live) + _STALE_QUEUE_ENTRIES_MAX:
            self._compact_queue()
        return removed

    def dead_letter(
        self, message: Message, cause: DeadLetterCause, reason: str, at_us: int
    ) -> None:
        """Turn a live message into a dead letter."""
        self.remove(message)
        message.state = DEAD
        message.cause = cause
        message.reason = reason
        message.failed_at_us = at_us
        self.add_dead(message)

    def add_dead(self, message: Message) -> None:
        """Add a dead letter."""
        self.dead[message.id] = message
        if message.cause is REJECTED:
            self.rejected.add(message.sender, message.size, message.tier)

    def remove_dead(self, message_id: str) -> Message | None:
        """Remove a dead letter, and return it if there is one with this id."""
        message = self.dead.pop(message_id, None)
        if message is not None and message.cause is REJECTED:
            self.rejected.remove_all((message,))
        return message

    def take(
        self,
        limit: int,
        max_size_bytes: int | None,
        now_us: int,
        committed_seq: int,
        enough_bytes: int = NO_LIMIT,
    ) -> tuple[list[Message], list[Message]]:
        """Dequeue up to `limit` messages; return them, and expired ones found on the way.

        Messages that are too large or delayed stay queued; dequeuing stops after `enough_bytes`.
        The caller must record a lease or an expiry for each message of both lists.
        """
        taken: list[Message] = []
        expired: list[Message] = []
        passed: list[Message] = []
        queue = self.queue
        now_ms = now_us // 1000
        while queue and len(taken) < limit and enough_bytes > 0:
            message = queue[0]
            if message.order > committed_seq:
                break
            queue.popleft()
            if message.state is not PENDING:
                message.queued = False
            elif message.ttl < now_ms:
                message.queued = False
                expired.append(message)
            elif message.not_before_us > now_us or (
                max_size_bytes is not None and message.size > max_size_bytes
            ):
                passed.append(message)
            else:
                message.queued = False
                taken.append(message)
                enough_bytes -= message.size
        if passed:
            queue.extendleft(reversed(passed))
        return taken, expired

    def _compact_queue(self) -> None:
        """Drop queue entries of removed messages, which would otherwise stay in memory."""
        pending: deque[Message] = deque()
        for message in self.queue:
            if message.state is PENDING:
                pending.append(message)
            else:
                message.queued = False
        self.queue = pending

    @property
    def pending_count(self) -> int:
        """How many messages are pending."""
        return self.occupancy.depth - self.leased_count - self.scheduled_count

    def scheduled(self) -> list[Message]:
        """Return the scheduled messages, in order of acceptance."""
        if not self.scheduled_count:
            return []
        return [message for message in self.live.values() if message.state is SCHEDULED]

    def pending(self) -> Iterable[Message]:
        """Return the pending messages, in order."""
        return (m for m in self.queue if m.state is PENDING)

    def take_expired(self, now_ms: int) -> list[Message]:
        """Return the expired pending messages; the caller must record their expiry."""
        if now_ms <= self.earliest_ttl:
            return []
        pending = list(self.pending())
        self.earliest_ttl = min((m.ttl for m in pending if m.ttl >= now_ms), default=NO_LIMIT)
        return [message for message in pending if message.ttl < now_ms]
