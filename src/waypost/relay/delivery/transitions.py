"""State transitions of a message: stored, queued, leased, acknowledged, returned, dead, expired,
cancelled, redriven.

A transition records the event, updates the mirror, and reports the outcome to the breakers. The
decision to make it is up to the caller.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypedDict

from waypost.policy.bounds import lease_max_messages, mailbox_dead_letters_max
from waypost.policy.occupancy import choose_purges
from waypost.relay.delivery.askers import Askers
from waypost.relay.delivery.breaker_feedback import BreakerFeedback
from waypost.relay.delivery.expiries import ExpiryLog
from waypost.relay.maildir.mirror import MailboxMirror
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import EVICTED, PENDING, Mailbox, Message
from waypost.relay.state.payloads import PayloadStore
from waypost.wire import events


class _Named(TypedDict, total=False):
    """The messages of an event: one, or several."""

    id: str
    ids: tuple[str, ...]


def _named(messages: Iterable[Message]) -> _Named:
    ids = tuple([message.id for message in messages])
    return {"ids": ids} if len(ids) > 1 else {"id": ids[0]}


class Transitions:
    """Makes the transitions of all messages of one relay."""

    def __init__(
        self,
        ledger: Ledger,
        mirror: MailboxMirror,
        breaker_feedback: BreakerFeedback,
        payloads: PayloadStore,
        askers: Askers,
    ) -> None:
        self._ledger = ledger
        self._mirror = mirror
        self._breaker_feedback = breaker_feedback
        self._payloads = payloads
        self._askers = askers
        self.expiries = ExpiryLog()
        self.on_scheduled: Callable[[], None] = lambda: None
        """Called after a message was scheduled."""

    def store(self, mailbox: Mailbox, event: events.Accepted, content: bytes) -> None:
        """Put an admitted message into its mailbox."""
        was_dead, ledger = event.chosen_id and event.id in mailbox.dead, self._ledger
        message = ledger.record_arrival(event, content)
        self._payloads.cache(message, event, content)
        self._mirror.on_stored(mailbox, message, was_dead=was_dead)
        ledger.wake(mailbox.subject)
        if event.probe:
            self._breaker_feedback.on_stored(event)
        if event.due_us:
            self.on_scheduled()

    def store_rejected(self, mailbox: Mailbox, event: events.Rejected, content: bytes) -> None:
        """Put a rejected message into its mailbox as a dead letter."""
        message = self._ledger.record_arrival(event, content)
        self._payloads.cache(message, event, content)
        self._mirror_dead_letter(mailbox, message)

    def lease(self, mailbox: Mailbox, messages: Sequence[Message], via: str, until_us: int) -> None:
        """Lease messages until `until_us`; 0 is without a deadline."""
        at_us, endpoint = self._ledger.now_us(), mailbox.subject
        leased = [
            events.Leased(
                at_us=at_us,
                endpoint=endpoint,
                via=via,
                until_us=until_us,
                attempt=attempt + 1,
                **_named(together),
            )
            for attempt, together in groupby(messages, key=attrgetter("attempt"))
        ]
        # A lease that a crash loses ends as one that it interrupts: its message is pending again.
        self._ledger.record_all(leased, is_awaited=False)
        self._mirror.on_events(mailbox, leased)

    def extend(self, message: Message, until_us: int) -> None:
        """Extend a lease until `until_us`."""
        self._ledger.record(
            events.Leased(
                at_us=self._ledger.now_us(),
                endpoint=message.endpoint,
                id=message.id,
                via=message.via,
                until_us=until_us,
                attempt=message.attempt,
                extended=True,
            )
        )

    def ack(self, mailbox: Mailbox, messages: Sequence[Message], via: str) -> None:
        """Acknowledge messages of one mailbox."""
        at_us, endpoint = self._ledger.now_us(), mailbox.subject
        # Each of them may close a breaker, which is then the next event.
        together_max = 1 if self._breaker_feedback.breakers else lease_max_messages
        for begin in range(0, len(messages), together_max):
            together = messages[begin : begin + together_max]
            acked = events.Acked(at_us=at_us, endpoint=endpoint, via=via, **_named(together))
            self._ledger.record_all([acked])
            if together_max == 1:
                self._breaker_feedback.on_event(acked)
            self._mirror_events(mailbox, (acked,))

    def release(
        self, message: Message, reason: str, not_before_us: int = 0, *, uncounted: bool = False
    ) -> None:
        """Return a leased message to its queue position."""
        self._record(
            events.Returned(
                at_us=self._ledger.now_us(),
                endpoint=message.endpoint,
                id=message.id,
                reason=reason,
                not_before_us=not_before_us,
                uncounted=uncounted,
            )
        )
        self._ledger.wake(message.endpoint)

    def return_probes(self, is_consumed: Callable[[str], bool]) -> None:
        """Return pending probes whose consumer has left: it will not end their deliveries."""
        for endpoint, message_id in self._breaker_feedback.deferred_probes():
            message = self._ledger.state.mailboxes[endpoint].live[message_id]
            if message.state is PENDING and not is_consumed(endpoint):
                self.release(message, "its consumer left before its delivery", uncounted=True)

    def fail(
        self,
        message: Message,
        reason: str,
        via: str = "handler",
        *,
        error: str = "",
        uncounted: bool = False,
    ) -> None:
        """Turn a message into a dead letter; `uncounted` if its endpoint is not to blame.

        `error` is what its consumer gave as the cause, for a sender that waits.
        """
        with self._ledger.one_time as at_us:
            self._dead_letter(
                message,
                events.Failed(
                    at_us=at_us,
                    endpoint=message.endpoint,
                    id=message.id,
                    reason=reason,
                    via=via,
                    uncounted=uncounted,
                ),
            )
        self._askers.on_failed(message, error)

    def evict(self, message: Message, reason: str) -> None:
        """Evict a message; it becomes a dead letter."""
        with self._ledger.one_time as at_us:
            self._dead_letter(
                message,
                events.Evicted(
                    at_us=at_us,
                    endpoint=message.endpoint,
                    id=message.id,
                    sender=message.sender,
                    reason=reason,
                ),
            )

    def expire(self, message: Message) -> None:
        """Remove an expired message."""
        self._record(
            events.Expired(at_us=self._ledger.now_us(), endpoint=message.endpoint, id=message.id)
        )
        self.expiries.count(message.endpoint)

    def expire_due(self, mailbox: Mailbox) -> None:
        """Expire the due messages of `mailbox`."""
        for message in mailbox.take_expired(self._ledger.now_us() // 1000):
            self.expire(message)

    def purge(self, message: Message, reason: str) -> None:
        """Delete a dead letter."""
        self._record(
            events.Expired(
                at_us=self._ledger.now_us(),
                endpoint=message.endpoint,
                id=message.id,
                was="dead",
                reason=reason,
            )
        )

    def redrive(self, message: Message) -> None:
        """Put a dead letter back at the end of its queue, or schedule it again."""
        redriven = self._ledger.record(
            events.Redriven(at_us=self._ledger.now_us(), endpoint=message.endpoint, id=message.id)
        )
        assert redriven is not None
        self._mirror.on_stored(self._mailbox(message), redriven, was_dead=True)
        self._ledger.wake(message.endpoint)
        self.on_scheduled()

    def queue_due(self, message: Message) -> None:
        """Put a scheduled message that is due at the end of its queue."""
        at_us, endpoint = self._ledger.now_us(), message.endpoint
        self._ledger.record(events.Queued(at_us=at_us, endpoint=endpoint, id=message.id))
        self._mirror.on_stored(self._mailbox(message), message, was_dead=False)
        self._ledger.wake(endpoint)

    def cancel(self, message: Message, via: str) -> None:
        """Remove a scheduled message, cancelled by its "sender" or the "operator"."""
        at_us, endpoint = self._ledger.now_us(), message.endpoint
        self._record(events.Cancelled(at_us=at_us, endpoint=endpoint, id=message.id, via=via))

    def _dead_letter(self, message: Message, event: events.Failed | events.Evicted) -> None:
        self._ledger.record(event)
        self._mirror_dead_letter(self._mailbox(message), message)
        self._breaker_feedback.on_event(event)

    def _mirror_dead_letter(self, mailbox: Mailbox, message: Message) -> None:
        """Mirror a new dead letter; purge some if there are too many."""
        self._mirror.on_dead_lettered(mailbox, message)
        surplus = len(mailbox.dead) - mailbox_dead_letters_max
        if surplus > 0:
            # A few more, because choosing takes long.
            self._purge_surplus(mailbox, surplus + mailbox_dead_letters_max // 100)

    def _purge_surplus(self, mailbox: Mailbox, count: int) -> None:
        has_contact = self._ledger.state.has_contact
        dead = list(mailbox.dead.values())
        known = {one: has_contact(mailbox.subject, one) for one in {one.sender for one in dead}}
        candidates = [(known[one.sender], one.cause is EVICTED, one.sender) for one in dead]
        for position in choose_purges(candidates, count):
            self.purge(dead[position], "too many dead letters")

    def _record(self, event: events.MailboxEvent) -> None:
        mailbox = self._ledger.state.mailboxes[event.endpoint]
        self._ledger.record(event)
        self._mirror_events(mailbox, (event,))
        self._breaker_feedback.on_event(event)

    def _mirror_events(self, mailbox: Mailbox, changes: Sequence[events.MailboxEvent]) -> None:
        self._mirror.on_events(mailbox, changes)
        if mailbox.subject not in self._ledger.state.mailboxes:
            self._mirror.on_unregistered(mailbox)

    def _mailbox(self, message: Message) -> Mailbox:
        return self._ledger.state.mailboxes[message.endpoint]
