"""Consumers that stay: whoever is at the other end of a connection, for as long as it lasts.

Rule 1  One at a mailbox. It is told when there may be something for it.
Rule 2  What it holds has no deadline. When it leaves, what it did not confirm waits again, at its
        old place in line.
Rule 3  It gets messages in the order of the mailbox, once they are durable.
"""

import logging
from collections.abc import Callable, Iterable

import msgspec

from waypost.relay.delivery.claims import Claims
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import MailboxTaken, RelayError, UnknownEndpoint
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import LEASED, NO_LIMIT, Mailbox, Message
from waypost.relay.state.payloads import PayloadStore, envelope_of
from waypost.wire.envelopes import Envelope
from waypost.wire.events import SessionChanged

log = logging.getLogger("waypost.relay")

VIA = "connection"


class Delivery(msgspec.Struct, frozen=True):
    """One message as it is handed out: its payload still JSON text, `order` its place in line."""

    envelope: Envelope
    parent: str | None
    order: int
    size: int


class Consumer:
    """Stays at one mailbox until it leaves."""

    def __init__(self, consumers: "Consumers", subject: str) -> None:
        self._consumers = consumers
        self.subject = subject
        self.in_flight: dict[str, Message] = {}

    def pending(self) -> int:
        """How many messages wait for it; those whose time is up do not."""
        mailbox = self._mailbox()
        if mailbox is None:
            return 0
        self._consumers.transitions.expire_due(mailbox)
        return sum(1 for _ in mailbox.pending())

    def committed_seq(self) -> int:
        """The place in line of the newest message that can be taken now."""
        return self._consumers.claims.committed_seq()

    def newest_order(self) -> int:
        """The place in line of the newest message there is, on disk yet or not; 0 without any."""
        mailbox = self._mailbox()
        return mailbox.queue[-1].order if mailbox is not None and mailbox.queue else 0

    def take(
        self, limit: int, max_size_bytes: int | None = None, enough_bytes: int = NO_LIMIT
    ) -> list[Delivery]:
        """The next messages, at most `limit` and none after `enough_bytes` of them.

        Larger ones than `max_size_bytes` stay.
        """
        mailbox = self._mailbox()
        if mailbox is None:
            return []
        claim = self._consumers.claims.claim
        while claimed := claim(
            mailbox, limit, VIA, max_size_bytes=max_size_bytes, enough_bytes=enough_bytes
        ):
            deliveries = [one for message in claimed if (one := self._open(message)) is not None]
            if deliveries:
                return deliveries
        return []

    def ack(self, ids: Iterable[str]) -> list[Message]:
        """These are done, held or not; gives those that were still there."""
        wanted = list(ids)
        for one in wanted:
            self.in_flight.pop(one, None)
        try:
            return self._consumers.claims.ack(self.subject, wanted, VIA)
        except UnknownEndpoint:
            return []

    def nack(self, ids: Iterable[str], delay_s: float) -> list[Message]:
        """Those of these that it holds wait again, not before `delay_s` has passed."""
        mine = [one for one in ids if self.in_flight.pop(one, None) is not None]
        if self._mailbox() is None:
            return []
        return self._consumers.claims.nack(self.subject, mine, delay_s)

    def fail(self, message_id: str, reason: str) -> None:
        """One that it holds can never be handed over: it becomes a dead letter."""
        message = self.in_flight.pop(message_id)
        if message.state is LEASED:
            self._consumers.transitions.fail(message, reason, via=VIA)

    def prune(self) -> list[str]:
        """Hold no longer what somebody else has confirmed or given back; gives their ids."""
        gone = [one.id for one in self.in_flight.values() if one.state is not LEASED]
        for one in gone:
            del self.in_flight[one]
        return gone

    def detach(self) -> None:
        """Give back what it holds. Nothing happens the second time."""
        if self._consumers.remove(self):
            in_flight, self.in_flight = self.in_flight, {}
            for message in sorted(in_flight.values(), key=lambda one: -one.order):
                if message.state is LEASED:
                    self._consumers.transitions.release(message, "the connection ended")

    def _mailbox(self) -> Mailbox | None:
        """None when the endpoint was unregistered meanwhile, and nothing was left in it."""
        try:
            return self._consumers.claims.mailbox(self.subject)
        except UnknownEndpoint:
            return None

    def _open(self, message: Message) -> Delivery | None:
        try:
            event, content = self._consumers.payloads.read(message)
        except (RelayError, OSError) as problem:
            self._consumers.transitions.fail(message, f"unreadable: {problem}", via=VIA)
            return None
        self.in_flight[message.id] = message
        envelope = envelope_of(event, msgspec.Raw(content))
        return Delivery(envelope, event.parent, message.order, message.size)


class Consumers:
    """Who stays at which mailbox."""

    def __init__(
        self, ledger: Ledger, claims: Claims, transitions: Transitions, payloads: PayloadStore
    ) -> None:
        self.claims = claims
        self.transitions = transitions
        self.payloads = payloads
        self._ledger = ledger
        self._attached: dict[str, tuple[Consumer, Callable[[], None]]] = {}
        ledger.listeners.on_visible(self._notify)

    def attach(self, subject: str, on_arrival: Callable[[], None]) -> Consumer:
        """Stay at the mailbox of `subject`; `on_arrival` is called when there may be mail.

        Raises `UnknownEndpoint` or `MailboxTaken`.
        """
        self.claims.mailbox(subject)
        if subject in self._attached:
            raise MailboxTaken(subject)
        consumer = Consumer(self, subject)
        self._attached[subject] = (consumer, on_arrival)
        self._note(subject, "connected")
        return consumer

    def remove(self, consumer: Consumer) -> bool:
        """Whether `consumer` was there until now."""
        attached = self._attached.get(consumer.subject)
        if attached is None or attached[0] is not consumer:
            return False
        del self._attached[consumer.subject]
        self._note(consumer.subject, "disconnected")
        return True

    def _notify(self, subject: str) -> None:
        """There may be mail for whoever stays at `subject`. One that raises stops no other."""
        attached = self._attached.get(subject)
        if attached is None:
            return
        try:
            attached[1]()
        except Exception:
            log.exception("handing out mail of %s failed", subject)

    def detach_all(self) -> None:
        """The relay is about to close."""
        for consumer, _ in list(self._attached.values()):
            consumer.detach()

    def _note(self, subject: str, action: str) -> None:
        now_us = self._ledger.now_us()
        self._ledger.record(SessionChanged(at_us=now_us, subject=subject, action=action))
