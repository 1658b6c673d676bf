"""Attached consumers: one per connection, for as long as it lasts.

Rule 1  A mailbox has at most one attached consumer, which is notified of new messages.
Rule 2  Its messages in flight have no deadlines of their own, but it has to show life
        (`life_signs`). When it does not, or detaches, unacknowledged messages return to their
        queue positions.
Rule 3  It gets messages in the order of the mailbox, once they are durable.
"""

import logging
from collections.abc import Callable, Iterable
from itertools import count

import msgspec

from waypost.relay.delivery.claims import Claims
from waypost.relay.delivery.life_signs import LifeSigns
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import MailboxTaken, RelayError, UnknownEndpoint
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import LEASED, NO_LIMIT, Mailbox, Message
from waypost.relay.state.payloads import PayloadStore, envelope_of
from waypost.relay.state.recent import RecentlyAcked
from waypost.wire.envelopes import Envelope
from waypost.wire.events import SessionChanged

log = logging.getLogger("waypost.relay")

VIA = "connection"


class Delivery(msgspec.Struct, frozen=True):
    """One delivered message: its payload is raw JSON, `order` its queue position."""

    envelope: Envelope
    parent: str | None
    order: int
    size: int


class Consumer:
    """A consumer attached to one mailbox; `in_flight` are its unacknowledged messages.

    Messages with a queue position above `attached_seq` have arrived since it was attached. `shown`
    are the ids of messages in flight that are not to be processed: they are released. It is stuck
    while `stuck_since_us` is not 0. `on_stuck` is called when that begins, and `on_abandoned` when
    its connection is to end because of it.
    """

    def __init__(self, consumers: "Consumers", subject: str, key: str) -> None:
        self._consumers = consumers
        self.subject = subject
        self.key = key
        self.attached_seq = 0
        self.in_flight: dict[str, Message] = {}
        self.bytes_in_flight = 0
        self.shown: set[str] = set()
        self.alive_us = 0
        self.stuck_since_us = 0
        self.on_stuck: Callable[[], None] = lambda: None
        self.on_abandoned: Callable[[], None] = lambda: None

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

        Messages larger than `max_size_bytes` are passed over.
        """
        mailbox = self._mailbox()
        if mailbox is None or self.stuck_since_us:
            return []
        claim, was_idle = self._consumers.claims.claim, not self.in_flight
        while claimed := claim(
            mailbox, limit, VIA, max_size_bytes=max_size_bytes, enough_bytes=enough_bytes
        ):
            deliveries = [one for message in claimed if (one := self._open(message)) is not None]
            if deliveries:
                if was_idle:
                    self._consumers.life.watch(self)
                return deliveries
        return []

    def ack(self, ids: Iterable[str]) -> list[Message]:
        """Acknowledge messages, in flight or not; return those still in the mailbox."""
        wanted = list(ids)
        for one in wanted:
            self._forget(one)
        try:
            acked = self._consumers.claims.ack(self.subject, wanted, VIA)
        except UnknownEndpoint:
            return []
        self._consumers.acked.add(acked)
        self._show_life(acked)
        return acked

    def nack(self, ids: Iterable[str], delay_s: float) -> list[Message]:
        """Return messages in flight whose delivery failed, as `Claims.nack`; ignore other ids."""
        mine = self._drop(ids)
        if self._mailbox() is None:
            return []
        nacked = self._consumers.claims.nack(self.subject, mine, delay_s, VIA)
        self._show_life(nacked)
        return nacked

    def extend(self, ids: Iterable[str], seconds: float) -> list[Message]:
        """Extend the leases of messages in flight, as `Claims.extend`; ignore other ids."""
        mine = [one for one in ids if one in self.in_flight]
        if self._mailbox() is None:
            return []
        leased, _ = self._consumers.claims.extend(self.subject, mine, seconds)
        self._show_life(leased)
        return leased

    def release(self, ids: Iterable[str], delay_s: float) -> list[Message]:
        """Return messages in flight without a verdict for at least `delay_s`; ignore other ids."""
        mine = self._drop(ids)
        if self._mailbox() is None:
            return []
        released = self._consumers.claims.release(self.subject, mine, delay_s)
        self._show_life(released)
        return released

    def fail(self, message_id: str, reason: str) -> None:
        """Turn a message in flight that can never be delivered into a dead letter."""
        message = self._forget(message_id)
        if message is not None and message.state is LEASED:
            self._consumers.transitions.fail(message, reason, via=VIA, uncounted=True)

    def prune(self) -> bool:
        """Drop messages from `in_flight` that others acknowledged or returned; return whether
        there were any."""
        gone = [one.id for one in self.in_flight.values() if one.state is not LEASED]
        for one in gone:
            self._forget(one)
        return bool(gone)

    def detach(self, *, stopping: bool = False, reason: str = "") -> None:
        """Return the messages in flight; a second call does nothing.

        With `stopping`, the relay has ended the connection because it stops; `reason` is why it
        has ended it otherwise.
        """
        if not self._consumers.remove(self, reason):
            return
        if not stopping:
            self._return_all("the connection ended")
            return
        for message in reversed(self._take_in_flight()):
            self._consumers.transitions.release(message, "the relay stopped", uncounted=True)

    def become_stuck(self, now_us: int, reason: str) -> None:
        """Return the messages in flight; deliver no more until the agent shows life."""
        self.stuck_since_us = now_us
        self._return_all(reason)
        self.on_stuck()

    def lose_all(self, now_us: int) -> None:
        """Deliver no more until the agent shows life; the caller returns what was in flight."""
        if self._take_in_flight():
            self.stuck_since_us = now_us

    def is_paused(self) -> bool:
        """Return whether no message is to be delivered for now."""
        return bool(self.stuck_since_us) or self._consumers.claims.returns.is_paused(self.subject)

    def _show_life(self, messages: list[Message]) -> None:
        """Record a sign of life: an operation on `messages`, or any at all of a stuck agent."""
        if messages or self.stuck_since_us:
            self._consumers.life.show(self)

    def _return_all(self, reason: str) -> None:
        returns, shown = self._consumers.claims.returns, self.shown
        leased = self._take_in_flight()
        returns.release([one for one in reversed(leased) if one.id in shown], reason)
        worked_on = [one for one in leased if one.id not in shown]
        if worked_on:
            returns.disconnect(worked_on, reason, VIA)

    def _take_in_flight(self) -> list[Message]:
        """Empty `in_flight`; return those of its messages that are still leased, in order."""
        in_flight, self.in_flight = self.in_flight.values(), {}
        self.bytes_in_flight, self.shown = 0, set()
        return sorted((one for one in in_flight if one.state is LEASED), key=lambda one: one.order)

    def _forget(self, message_id: str) -> Message | None:
        """Remove a message from `in_flight`, and return it if it was there."""
        message = self.in_flight.pop(message_id, None)
        if message is not None:
            self.bytes_in_flight -= message.size
            if self.shown:
                self.shown.discard(message_id)
        return message

    def _drop(self, ids: Iterable[str]) -> list[str]:
        """Remove messages from `in_flight`; return the ids that were there."""
        return [one for one in ids if self._forget(one) is not None]

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
        self._forget(message.id)  # it may have been delivered before
        self.in_flight[message.id] = message
        self.bytes_in_flight += message.size
        envelope = envelope_of(event, msgspec.Raw(content))
        return Delivery(envelope, event.parent, message.order, message.size)


class Consumers:
    """The attached consumers of all mailboxes."""

    def __init__(  # noqa: PLR0913, PLR0917 - what delivery to consumers touches
        self,
        ledger: Ledger,
        claims: Claims,
        transitions: Transitions,
        payloads: PayloadStore,
        acked: RecentlyAcked,
        life: LifeSigns,
        on_left: Callable[[], None],
    ) -> None:
        """Take `on_left`, which is called after a consumer has detached."""
        self.claims = claims
        self.acked = acked
        self.transitions = transitions
        self.payloads = payloads
        self._ledger = ledger
        self.life = life
        self._on_left = on_left
        self._attached: dict[str, tuple[Consumer, Callable[[], None]]] = {}
        self._keys = count(1)
        ledger.listeners.on_visible(self._notify)

    def attach(self, subject: str, on_arrival: Callable[[], None]) -> Consumer:
        """Attach a consumer to `subject`; call `on_arrival` when there may be messages.

        Raise `UnknownEndpoint` or `MailboxTaken`.
        """
        self.claims.mailbox(subject)
        if subject in self._attached:
            raise MailboxTaken(subject)
        consumer = Consumer(self, subject, str(next(self._keys)))
        self._attached[subject] = (consumer, on_arrival)
        self._record(subject, "connected")
        consumer.attached_seq = self._ledger.state.seq
        return consumer

    def remove(self, consumer: Consumer, reason: str = "") -> bool:
        """Remove `consumer`; return whether it was attached."""
        attached = self._attached.get(consumer.subject)
        if attached is None or attached[0] is not consumer:
            return False
        del self._attached[consumer.subject]
        self.life.forget(consumer)
        self._record(consumer.subject, "disconnected", reason)
        self._on_left()
        return True

    def is_attached(self, subject: str) -> bool:
        """Return whether `subject` has an attached consumer."""
        return subject in self._attached

    def release_leases(self, subject: str) -> int:
        """Return the leased messages of `subject`, but not those of handlers; return how many.

        The consumer is treated as stuck. Raise `UnknownEndpoint`.
        """
        mailbox, reason = self.claims.mailbox(subject), "released by the operator"
        leased = [one for one in mailbox.live.values() if one.state is LEASED]
        taken = [one for one in reversed(leased) if one.via != "handler"]
        attached = self._attached.get(subject)
        if attached is not None:
            attached[0].lose_all(self._ledger.now_us())
            self.life.check(attached[0])
        self.claims.returns.release(taken, reason)
        return len(taken)

    def _notify(self, subject: str) -> None:
        """Notify the consumer of `subject`; an error in one does not affect others."""
        attached = self._attached.get(subject)
        if attached is None:
            return
        try:
            attached[1]()
        except Exception:
            log.exception("delivery to the consumer of %s failed", subject)

    def detach_all(self) -> None:
        """Detach every consumer, because the relay stops."""
        for consumer, _ in list(self._attached.values()):
            consumer.detach(stopping=True)

    def _record(self, subject: str, action: str, reason: str = "") -> None:
        now_us = self._ledger.now_us()
        self._ledger.record(
            SessionChanged(at_us=now_us, subject=subject, action=action, reason=reason)
        )
