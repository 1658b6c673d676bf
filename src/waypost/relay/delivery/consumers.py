"""Attached consumers: one per connection, for as long as it lasts.

Rule 1  A mailbox has at most one attached consumer, or several that share it (`pools`). They are
        notified of new messages.
Rule 2  Its messages in flight have no deadline. When it detaches, unacknowledged ones return to
        their queue positions.
Rule 3  It gets messages in the order of the mailbox, once they are durable.
Rule 4  A message in flight is its own until it is returned, by whatever means: from then on it may
        be in flight elsewhere.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable

import msgspec

from waypost.policy.bounds import answers_ahead_max_messages, sent_per_worker_in_memory_max
from waypost.policy.settings import Settings
from waypost.relay.delivery.claims import Claims
from waypost.relay.delivery.pools import Pool
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import MailboxTaken, PoolFull, RelayError, UnknownEndpoint
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import LEASED, NO_LIMIT, Mailbox, Message
from waypost.relay.state.payloads import PayloadStore, envelope_of
from waypost.relay.state.recent import RecentlyAcked
from waypost.wire.envelopes import Envelope
from waypost.wire.events import SessionChanged

VIA = "connection"


class Delivery(msgspec.Struct, frozen=True):
    """One delivered message: its payload is raw JSON, `order` its queue position."""

    envelope: Envelope
    parent: str | None
    order: int
    size: int


class Consumer:
    """A consumer attached to one mailbox; `in_flight` are its unacknowledged messages.

    Messages with a queue position above `attached_seq` have arrived since it was attached, or the
    first worker of its pool.
    """

    def __init__(
        self,
        consumers: "Consumers",
        subject: str,
        pool: "Pool[Consumer]",
        on_arrival: Callable[[], None],
    ) -> None:
        self._consumers = consumers
        self._pool = pool
        self.subject = subject
        self.notify = on_arrival
        self.turn: int | None = None
        self.in_flight: dict[str, Message] = {}
        self._answers: dict[str, Message] = {}
        self._lost: set[str] = set()
        self._sent: OrderedDict[str, None] = OrderedDict()

    @property
    def attached_seq(self) -> int:
        """The position in the journal at which it was attached, or the first of its pool."""
        return self._pool.since_seq

    @property
    def is_shared(self) -> bool:
        """Whether other consumers may share the mailbox."""
        return self._pool.shared

    @property
    def has_answers(self) -> bool:
        """Whether answers to its own messages wait, which it gets first."""
        return bool(self._answers)

    @property
    def has_room(self) -> bool:
        """Whether answers may be kept for it."""
        return len(self.in_flight) + len(self._answers) < answers_ahead_max_messages

    def pending(self) -> int:
        """Expire due messages, and return the number of pending ones."""
        mailbox = self._mailbox()
        if mailbox is None:
            return 0
        self._consumers.transitions.expire_due(mailbox)
        return sum(1 for _ in mailbox.pending())

    def committed_seq(self) -> int:
        """Return the queue position up to which messages can be taken now."""
        return self._consumers.claims.committed_seq()

    def newest_order(self) -> int:
        """Return the queue position of the newest message, durable or not; 0 without any."""
        mailbox = self._mailbox()
        return mailbox.queue[-1].order if mailbox is not None and mailbox.queue else 0

    def take(
        self, limit: int, max_size_bytes: int | None = None, enough_bytes: int = NO_LIMIT
    ) -> list[Delivery]:
        """Take up to `limit` messages, and none after `enough_bytes`.

        Messages larger than `max_size_bytes` are passed over. In a pool, answers come first, and
        alone; otherwise it gets no more than its share.
        """
        mailbox = self._mailbox()
        if mailbox is None:
            return []
        if self._answers and (answers := self.take_answers(limit, max_size_bytes, enough_bytes)):
            return answers
        if self._pool.shared:
            limit = min(limit, self._pool.most(self, mailbox))
        claim = self._consumers.claims.claim
        while claimed := claim(
            mailbox, limit, VIA, max_size_bytes=max_size_bytes, enough_bytes=enough_bytes
        ):
            deliveries = [one for message in claimed if (one := self._open(message)) is not None]
            if deliveries:
                if self.turn is not None:
                    self.turn -= len(deliveries)
                return deliveries
        return []

    def take_answers(
        self, limit: int, max_size_bytes: int | None = None, enough_bytes: int = NO_LIMIT
    ) -> list[Delivery]:
        """Take answers to its own messages, as `take` does."""
        taken: list[Delivery] = []
        for message in list(self._answers.values()):
            if len(taken) >= limit or enough_bytes <= 0:
                break
            if max_size_bytes is not None and message.size > max_size_bytes:
                continue
            del self._answers[message.id]
            enough_bytes -= message.size
            if self._is_own(message) and (one := self._open(message)) is not None:
                taken.append(one)
        return taken

    def note_sent(self, message_id: str) -> None:
        """Remember that it sent a message: in a pool, answers to it are its own."""
        if self._pool.shared:
            self._sent[message_id] = None
            if len(self._sent) > sent_per_worker_in_memory_max:
                self._sent.popitem(last=False)

    def has_sent(self, message_id: str) -> bool:
        """Return whether it sent a message, as far as it remembers."""
        return message_id in self._sent

    def assign(self, message: Message) -> None:
        """Add an answer that was leased for it, to be taken next."""
        self._answers[message.id] = message

    def ack(self, ids: Iterable[str]) -> list[Message]:
        """Acknowledge messages, in flight or not; return those still in the mailbox."""
        wanted = list(ids)
        for one in wanted:
            self.in_flight.pop(one, None)
        self._lost.difference_update(wanted)
        try:
            acked = self._consumers.claims.ack(self.subject, wanted, VIA)
        except UnknownEndpoint:
            return []
        self._consumers.acked.add(acked)
        return acked

    def nack(self, ids: Iterable[str], delay_s: float) -> list[Message]:
        """Return messages in flight whose delivery failed, as `Claims.nack`; ignore other ids."""
        mine = self._drop(ids)
        if self._mailbox() is None:
            return []
        return self._consumers.claims.nack(self.subject, mine, delay_s, VIA)

    def release(self, ids: Iterable[str], delay_s: float) -> list[Message]:
        """Return messages in flight without a verdict for at least `delay_s`; ignore other ids."""
        mine = self._drop(ids)
        if self._mailbox() is None:
            return []
        return self._consumers.claims.release(self.subject, mine, delay_s)

    def fail(self, message_id: str, reason: str) -> None:
        """Turn a message in flight that can never be delivered into a dead letter."""
        message = self.in_flight.pop(message_id)
        if self._is_own(message):
            self._consumers.transitions.fail(message, reason, via=VIA, uncounted=True)

    def prune(self) -> list[str]:
        """Drop messages from `in_flight` that others acknowledged or returned; return their ids."""
        gone = [one.id for one in self.in_flight.values() if not self._is_own(one)]
        for one in gone:
            del self.in_flight[one]
            self._lost.discard(one)
        return gone

    def detach(self, *, stopping: bool = False, shown: Container[str] = ()) -> None:
        """Return the messages in flight; a second call does nothing.

        With `stopping`, the relay has ended the connection because it stops. The ids `shown` are
        of messages that were not to be processed: they are released.
        """
        if not self._consumers.remove(self):
            return
        unacked = (*self.in_flight.values(), *self._answers.values())
        leased = sorted((one for one in unacked if self._is_own(one)), key=lambda one: one.order)
        self.in_flight = {}
        if stopping:
            for message in reversed(leased):
                self._consumers.transitions.release(message, "the relay stopped", uncounted=True)
            return
        returns, reason = self._consumers.claims.returns, "the connection ended"
        untouched = {one.id for one in leased if one.id in shown or one.id in self._answers}
        returns.release([one for one in reversed(leased) if one.id in untouched], reason)
        worked_on = [one for one in leased if one.id not in untouched]
        if worked_on:
            returns.disconnect(worked_on, reason, VIA, in_order=not self._pool.shared)

    def is_paused(self) -> bool:
        """Return whether the deliveries of the mailbox pause."""
        return self._consumers.claims.returns.is_paused(self.subject)

    def lose(self, message_id: str) -> None:
        """Record that another worker has taken a message; one in flight stays in `in_flight`."""
        self._answers.pop(message_id, None)
        if message_id in self.in_flight:
            self._lost.add(message_id)

    def _take_over(self, message_id: str) -> None:
        """Take a message from the worker that had it before, if any."""
        self._lost.discard(message_id)
        for other in self._pool.workers:
            if other is not self:
                other.lose(message_id)

    def _drop(self, ids: Iterable[str]) -> list[str]:
        """Remove messages from `in_flight`; return the ids of those that were its own."""
        mine = []
        for one in ids:
            message = self.in_flight.pop(one, None)
            if message is not None and self._is_own(message):
                mine.append(one)
            self._lost.discard(one)
        return mine

    def _is_own(self, message: Message) -> bool:
        """Return whether a message of `in_flight` has not been returned, and leased by others."""
        return message.state is LEASED and message.via == VIA and message.id not in self._lost

    def _mailbox(self) -> Mailbox | None:
        """Return the mailbox; None if the endpoint was unregistered and its mailbox empty."""
        try:
            return self._consumers.claims.mailbox(self.subject)
        except UnknownEndpoint:
            return None

    def _open(self, message: Message) -> Delivery | None:
        try:
            event, content = self._consumers.payloads.read(message)
        except (RelayError, OSError) as problem:
            self._consumers.claims.on_unreadable(message, problem, VIA)
            return None
        if self._pool.shared:
            self._take_over(message.id)
        self.in_flight[message.id] = message
        envelope = envelope_of(event, msgspec.Raw(content))
        return Delivery(envelope, event.parent, message.order, message.size)


class Consumers:
    """The attached consumers of all mailboxes."""

    def __init__(  # noqa: PLR0913 - what consumers are made of
        self,
        ledger: Ledger,
        claims: Claims,
        transitions: Transitions,
        payloads: PayloadStore,
        acked: RecentlyAcked,
        *,
        settings: Callable[[], Settings],
        on_left: Callable[[], None],
    ) -> None:
        """Take `on_left`, which is called after a consumer has detached."""
        self.claims = claims
        self.acked = acked
        self.transitions = transitions
        self.payloads = payloads
        self._ledger = ledger
        self._settings = settings
        self._on_left = on_left
        self._pools: dict[str, Pool[Consumer]] = {}
        ledger.listeners.on_visible(self._notify)

    def attach(
        self, subject: str, on_arrival: Callable[[], None], *, shared: bool = False
    ) -> Consumer:
        """Attach a consumer to `subject`; call `on_arrival` when there may be messages.

        Raise `UnknownEndpoint`, `MailboxTaken`, or `PoolFull`.
        """
        self.claims.mailbox(subject)
        pool = self._pools.get(subject)
        if pool is None:
            pool = self._pools[subject] = Pool(subject, shared=shared)
            self._record(subject, "connected")
            pool.begin(self._ledger.state.seq)
        elif not (shared and pool.shared):
            raise MailboxTaken(subject)
        elif len(pool.workers) >= self._settings().max_workers:
            raise PoolFull(subject, self._settings().max_workers)
        consumer = Consumer(self, subject, pool, on_arrival)
        pool.workers[consumer] = None
        return consumer

    def remove(self, consumer: Consumer) -> bool:
        """Remove `consumer`; return whether it was attached."""
        pool = self._pools.get(consumer.subject)
        if pool is None or consumer not in pool.workers:
            return False
        del pool.workers[consumer]
        if not pool.workers:
            del self._pools[consumer.subject]
            self._record(consumer.subject, "disconnected")
        self._on_left()
        return True

    def is_attached(self, subject: str) -> bool:
        """Return whether `subject` has an attached consumer."""
        return subject in self._pools

    def _notify(self, subject: str) -> None:
        """Notify the consumers of `subject`."""
        pool = self._pools.get(subject)
        if pool is None:
            return
        if pool.shared:
            self._assign_answers(subject, pool)
        pool.notify()

    def _assign_answers(self, subject: str, pool: "Pool[Consumer]") -> None:
        """Lease new answers to the workers that asked."""
        mailbox = self._ledger.state.mailboxes.get(subject)
        if mailbox is None:
            return
        answers = pool.new_answers(mailbox, self.claims.committed_seq(), self._parent_of)
        for asker, message in answers:
            if asker.has_room and self.claims.claim_ahead(mailbox, message, VIA):
                asker.assign(message)

    def _parent_of(self, message: Message) -> str | None:
        try:
            return self.payloads.read(message)[0].parent
        except (RelayError, OSError):
            return None  # the worker that takes it finds out

    def detach_all(self) -> None:
        """Detach every consumer, because the relay stops."""
        for pool in list(self._pools.values()):
            for consumer in list(pool.workers):
                consumer.detach(stopping=True)

    def _record(self, subject: str, action: str) -> None:
        now_us = self._ledger.now_us()
        self._ledger.record(SessionChanged(at_us=now_us, subject=subject, action=action))
