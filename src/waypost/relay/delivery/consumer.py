"""A consumer: what one connection takes from its mailbox.

Rule 1  Its messages in flight have no deadlines of their own, but it has to show life
        (`life_signs`). When it does not, or detaches, unacknowledged messages return to their
        queue positions.
Rule 2  It gets messages in the order of the mailbox, once they are durable.
Rule 3  A message in flight is its own until it is returned, by whatever means: from then on it may
        be in flight elsewhere.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from waypost.policy.bounds import answers_ahead_max_messages, sent_per_worker_in_memory_max
from waypost.relay.delivery.claims import Claims
from waypost.relay.delivery.life_signs import LifeSigns
from waypost.relay.delivery.pools import Pool
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import RelayError, UnknownEndpoint
from waypost.relay.state.mailbox import LEASED, NO_LIMIT, Mailbox, Message
from waypost.relay.state.payloads import PayloadStore, envelope_of
from waypost.relay.state.recent import RecentlyAcked
from waypost.wire.envelopes import Envelope

VIA = "connection"


class Delivery(msgspec.Struct, frozen=True):
    """One delivered message: its payload is raw JSON, `order` its queue position."""

    envelope: Envelope
    parent: str | None
    order: int
    size: int


class Delivering(NamedTuple):
    """What every consumer works with.

    `remove(consumer, reason)` returns whether the consumer was attached.
    """

    claims: Claims
    transitions: Transitions
    payloads: PayloadStore
    acked: RecentlyAcked
    life: LifeSigns
    remove: Callable[["Consumer", str], bool]


class Consumer:
    """A consumer attached to one mailbox; `in_flight` are its unacknowledged messages.

    Messages with a queue position above `attached_seq` have arrived since it was attached, or the
    first worker of its pool. `shown` are the ids of messages in flight that are not to be
    processed: they are released. It is stuck while `stuck_since_us` is not 0. `on_stuck` is called
    when that begins, and `on_abandoned` when its connection is to end because of it.
    """

    def __init__(
        self,
        delivering: Delivering,
        subject: str,
        key: str,
        pool: "Pool[Consumer]",
        on_arrival: Callable[[], None],
    ) -> None:
        self._delivering = delivering
        self._pool = pool
        self.subject = subject
        self.key = key
        self.notify = on_arrival
        self.turn: int | None = None
        self.in_flight: dict[str, Message] = {}
        self.bytes_in_flight = 0
        self.shown: set[str] = set()
        self.alive_us = 0
        self.stuck_since_us = 0
        self.on_stuck: Callable[[], None] = lambda: None
        self.on_abandoned: Callable[[], None] = lambda: None
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
        held = len(self.in_flight) + len(self._answers)
        return not self.stuck_since_us and held < answers_ahead_max_messages

    def pending(self) -> int:
        """Expire due messages, and return the number of pending ones."""
        mailbox = self._mailbox()
        if mailbox is None:
            return 0
        self._delivering.transitions.expire_due(mailbox)
        return sum(1 for _ in mailbox.pending())

    def committed_seq(self) -> int:
        """Return the queue position up to which messages can be taken now."""
        return self._delivering.claims.committed_seq()

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
        if mailbox is None or self.stuck_since_us:
            return []
        if self._answers and (answers := self.take_answers(limit, max_size_bytes, enough_bytes)):
            return answers
        if self._pool.shared:
            limit = min(limit, self._pool.most(self, mailbox))
        claim, was_idle = self._delivering.claims.claim, not self.in_flight
        while claimed := claim(
            mailbox, limit, VIA, max_size_bytes=max_size_bytes, enough_bytes=enough_bytes
        ):
            deliveries = [one for message in claimed if (one := self._open(message)) is not None]
            if deliveries:
                if self.turn is not None:
                    self.turn -= len(deliveries)
                if was_idle:
                    self._delivering.life.watch(self)
                return deliveries
        return []

    def take_answers(
        self, limit: int, max_size_bytes: int | None = None, enough_bytes: int = NO_LIMIT
    ) -> list[Delivery]:
        """Take answers to its own messages, as `take` does."""
        taken: list[Delivery] = []
        was_idle = not self.in_flight
        for message in list(self._answers.values()):
            if len(taken) >= limit or enough_bytes <= 0:
                break
            if max_size_bytes is not None and message.size > max_size_bytes:
                continue
            del self._answers[message.id]
            enough_bytes -= message.size
            if self._is_own(message) and (one := self._open(message)) is not None:
                taken.append(one)
        if taken and was_idle:
            self._delivering.life.watch(self)
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
            self._forget(one)
        try:
            acked = self._delivering.claims.ack(self.subject, wanted, VIA)
        except UnknownEndpoint:
            return []
        self._delivering.acked.add(acked)
        self._show_life(acked)
        return acked

    def nack(self, ids: Iterable[str], delay_s: float, error: str = "") -> list[Message]:
        """Return messages in flight whose delivery failed, as `Claims.nack`; ignore other ids."""
        mine = self._drop(ids)
        if self._mailbox() is None:
            return []
        nacked = self._delivering.claims.nack(self.subject, mine, delay_s, error, VIA)
        self._show_life(nacked)
        return nacked

    def extend(self, ids: Iterable[str], seconds: float) -> list[Message]:
        """Extend the leases of messages in flight, as `Claims.extend`; ignore other ids."""
        known = self.in_flight
        mine = [one for one in ids if one in known and self._is_own(known[one])]
        if self._mailbox() is None:
            return []
        leased, _ = self._delivering.claims.extend(self.subject, mine, seconds)
        self._show_life(leased)
        return leased

    def release(self, ids: Iterable[str], delay_s: float) -> list[Message]:
        """Return messages in flight without a verdict for at least `delay_s`; ignore other ids."""
        mine = self._drop(ids)
        if self._mailbox() is None:
            return []
        released = self._delivering.claims.release(self.subject, mine, delay_s)
        self._show_life(released)
        return released

    def fail(self, message_id: str, reason: str) -> None:
        """Turn a message in flight that can never be delivered into a dead letter."""
        message = self.in_flight.get(message_id)
        is_own = message is not None and self._is_own(message)
        self._forget(message_id)
        if message is not None and is_own:
            self._delivering.transitions.fail(message, reason, via=VIA, uncounted=True)

    def prune(self) -> bool:
        """Drop messages from `in_flight` that others acknowledged or returned; return whether
        there were any."""
        gone = [one.id for one in self.in_flight.values() if not self._is_own(one)]
        for one in gone:
            self._forget(one)
        return bool(gone)

    def detach(self, *, stopping: bool = False, reason: str = "") -> None:
        """Return the messages in flight; a second call does nothing.

        With `stopping`, the relay has ended the connection because it stops; `reason` is why it
        has ended it otherwise.
        """
        if not self._delivering.remove(self, reason):
            return
        if not stopping:
            self._return_all("the connection ended")
            return
        leased, answers = self._take_in_flight()
        for message in reversed(_in_order([*leased, *answers])):
            self._delivering.transitions.release(message, "the relay stopped", uncounted=True)

    def become_stuck(self, now_us: int, reason: str) -> None:
        """Return the messages in flight; deliver no more until the agent shows life."""
        self.stuck_since_us = now_us
        self._return_all(reason)
        self.on_stuck()

    def lose_all(self, now_us: int) -> None:
        """Deliver no more until the agent shows life; the caller returns what was in flight."""
        leased, _ = self._take_in_flight()
        if leased:
            self.stuck_since_us = now_us

    def is_paused(self) -> bool:
        """Return whether no message is to be delivered for now."""
        paused = self._delivering.claims.returns.is_paused(self.subject)
        return bool(self.stuck_since_us) or paused

    def lose(self, message_id: str) -> None:
        """Record that another worker has taken a message; one in flight stays in `in_flight`."""
        self._answers.pop(message_id, None)
        if message_id in self.in_flight:
            self._lost.add(message_id)

    def _show_life(self, messages: list[Message]) -> None:
        """Record a sign of life: an operation on `messages`, or any at all of a stuck agent."""
        if messages or self.stuck_since_us:
            self._delivering.life.show(self)

    def _return_all(self, reason: str) -> None:
        returns, shown = self._delivering.claims.returns, set(self.shown)
        leased, answers = self._take_in_flight()
        untouched = [*(one for one in leased if one.id in shown), *answers]
        returns.release(reversed(_in_order(untouched)), reason)
        worked_on = [one for one in leased if one.id not in shown]
        if worked_on:
            returns.disconnect(worked_on, reason, VIA, in_order=not self._pool.shared)

    def _take_in_flight(self) -> tuple[list[Message], list[Message]]:
        """Forget all messages; return those in flight that are still its own, in order, and the
        answers that it did not take."""
        leased = _in_order([one for one in self.in_flight.values() if self._is_own(one)])
        answers = [one for one in self._answers.values() if self._is_own(one)]
        self.in_flight, self._answers, self.bytes_in_flight = {}, {}, 0
        self._lost.clear()
        self.shown.clear()
        return leased, answers

    def _forget(self, message_id: str) -> None:
        """Remove a message from `in_flight`, if it is there."""
        message = self.in_flight.pop(message_id, None)
        if message is not None:
            self.bytes_in_flight -= message.size
            if self.shown:
                self.shown.discard(message_id)
            if self._lost:
                self._lost.discard(message_id)

    def _take_over(self, message_id: str) -> None:
        """Take a message from the worker that had it before, if any."""
        for other in self._pool.workers:
            if other is not self:
                other.lose(message_id)

    def _drop(self, ids: Iterable[str]) -> list[str]:
        """Remove messages from `in_flight`; return the ids of those that were its own."""
        mine = []
        for one in ids:
            message = self.in_flight.get(one)
            if message is not None and self._is_own(message):
                mine.append(one)
            self._forget(one)
        return mine

    def _is_own(self, message: Message) -> bool:
        """Return whether a message of `in_flight` has not been returned, and leased by others."""
        return message.state is LEASED and message.via == VIA and message.id not in self._lost

    def _mailbox(self) -> Mailbox | None:
        """Return the mailbox; None if the endpoint was unregistered and its mailbox empty."""
        try:
            return self._delivering.claims.mailbox(self.subject)
        except UnknownEndpoint:
            return None

    def _open(self, message: Message) -> Delivery | None:
        try:
            event, content = self._delivering.payloads.read(message)
        except (RelayError, OSError) as problem:
            self._delivering.claims.on_unreadable(message, problem, VIA)
            return None
        if self._pool.shared:
            self._take_over(message.id)
        self._forget(message.id)  # it may have been delivered before
        self.in_flight[message.id] = message
        self.bytes_in_flight += message.size
        envelope = envelope_of(event, msgspec.Raw(content), message.attempt)
        return Delivery(envelope, event.parent, message.order, message.size)


def _in_order(messages: list[Message]) -> list[Message]:
    return sorted(messages, key=lambda one: one.order)
