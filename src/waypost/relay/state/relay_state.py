"""The state of a relay: the fold of its journal.

Rule 1  `apply` is the only way to change the state, both live and in recovery.
Rule 2  `apply` cannot reject: it applies decisions that were made before.
Rule 3  Breakers are not part of the state; they start closed.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from waypost.policy.bounds import breaker_moves_in_memory_max, waits_in_memory_max
from waypost.policy.reasons import DEAD_LETTERED
from waypost.policy.schedules import is_ahead
from waypost.policy.subject_index import SubjectIndex
from waypost.policy.tiers import UNKNOWN, Tier, sender_tier
from waypost.relay.journal.segments import Location
from waypost.relay.state.directories import Directories
from waypost.relay.state.known_senders import KnownSenders, passed_rate_limit
from waypost.relay.state.mailbox import (
    DEAD,
    EVICTED,
    FAILED,
    GONE,
    LEASED,
    NOT_DEAD,
    PENDING,
    REJECTED,
    SCHEDULED,
    DeadLetterCause,
    Mailbox,
    Message,
    message_from_event,
)
from waypost.relay.state.scheduled import ScheduledMessages
from waypost.wire import events

NO_LOCATION = Location(0, 0, 0)
"""For events whose lines are never read again; only arrivals are."""


class RelayState:
    """Mailboxes, rate windows, last-seen pairs and duplicate ids."""

    def __init__(self) -> None:
        self.seq = 0
        self.at_us = 0
        self.epoch = 0
        """Of the last owner in the events folded; 0 if that one is before the checkpoint."""
        self.mailboxes: dict[str, Mailbox] = {}
        self.outboxes: dict[str, Mailbox] = {}
        """Messages that wait for the decision of another partition."""
        self.directories = Directories()
        self.endpoints: SubjectIndex[Mailbox] = SubjectIndex()
        self.senders = KnownSenders(lambda subject: self.mailbox(subject).hash)
        self.windows = self.senders.windows
        self.last_seen = self.senders.last_seen
        self.duplicates = self.senders.duplicates
        self.scheduled = ScheduledMessages()
        self.dirty: dict[int, Message] = {}
        """Messages that differ from the index, by order."""
        self.indexed_seq = 0
        """The last event that is in the index or in the checkpoint being written."""
        self.dirty_endpoints: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.waits_us: deque[int] = deque(maxlen=waits_in_memory_max)
        self.breaker_moves: deque[events.BreakerMoved] = deque(maxlen=breaker_moves_in_memory_max)
        self._tickets: dict[str, int] = {}
        self._appliers: dict[type[Any], Callable[[Any, Location], Message | None]] = {
            events.Accepted: self._accepted,
            events.Rejected: self._rejected,
            events.Forwarded: self._forwarded,
            events.Decided: self._decided,
            events.Leased: self._leased,
            events.Acked: self._acked,
            events.Returned: self._returned,
            events.Failed: self._failed,
            events.Expired: self._expired,
            events.Evicted: self._evicted,
            events.Redriven: self._redriven,
            events.Queued: self._queued,
            events.Cancelled: self._cancelled,
            events.EndpointChanged: self._endpoint_changed,
            events.BreakerMoved: self._breaker_moved,
            events.PairSeen: self._pair_seen,
            events.OwnerChanged: self._owner_changed,
            events.SessionChanged: _no_change,
            events.RulesChanged: _no_change,
            events.SettingsChanged: _no_change,
            events.SignedCheckpoint: _no_change,
        }

    def apply(self, event: events.AnyEvent, location: Location) -> Message | None:
        """Apply an event whose line is at `location`; return the message it put into a mailbox."""
        self.seq = event.seq
        self.at_us = event.at_us
        return self._appliers[type(event)](event, location)

    def apply_all(self, changes: Sequence[events.MailboxEvent]) -> None:
        """Apply events of one kind about messages stored before."""
        last = changes[-1]
        applier = self._appliers[type(last)]
        for event in changes:
            applier(event, NO_LOCATION)
        self.seq, self.at_us = last.seq, last.at_us

    def mailbox(self, subject: str) -> Mailbox:
        """Return the mailbox of `subject`; create it if it is new."""
        mailbox = self.mailboxes.get(subject)
        if mailbox is None:
            mailbox = self.mailboxes[subject] = self.directories.create_mailbox(subject)
        return mailbox

    def outbox(self, name: str) -> Mailbox:
        """Return the outbox of this name; create it if it is new."""
        outbox = self.outboxes.get(name)
        if outbox is None:
            outbox = self.outboxes[name] = Mailbox(name, "")
        return outbox

    def registered(self) -> Iterator[Mailbox]:
        """Return the mailboxes of registered endpoints, in order of registration."""
        return (self.mailboxes[subject] for subject in self._tickets)

    def restore_endpoint(self, subject: str, since_us: int, directory: str = "") -> None:
        """Register an endpoint as of `since_us`; `directory` is as journaled."""
        mailbox = self.mailbox(subject)
        self.directories.restore(mailbox, directory)
        mailbox.since_us = since_us
        if not mailbox.registered:
            mailbox.registered = True
            self._tickets[subject] = self.endpoints.add(subject, mailbox)

    def leased(self) -> list[Message]:
        """Return the leased messages of all mailboxes."""
        return [
            message
            for mailbox in self.mailboxes.values()
            if mailbox.leased_count
            for message in mailbox.live.values()
            if message.state is LEASED
        ]

    def dead_messages(
        self, subject: str | None = None, before_us: int | None = None
    ) -> list[Message]:
        """Return dead messages of one endpoint or all, the oldest failure first.

        With `before_us`, only those that failed before that instant.
        """
        mailboxes = self.mailboxes.values() if subject is None else [self.mailboxes.get(subject)]
        dead = [
            message
            for mailbox in mailboxes
            if mailbox is not None
            for message in mailbox.dead.values()
            if before_us is None or message.failed_at_us < before_us
        ]
        return sorted(dead, key=lambda message: (message.failed_at_us, message.order))

    def tier(self, sender: str, recipient: str, now_ms: int, window_ms: int) -> Tier:
        """Return the tier of a message that `sender` sends now.

        The message itself counts as the newest in its direction, even if it is rejected.
        """
        received_ms = self.last_seen.get((recipient, sender))
        return sender_tier(sender, now_ms, received_ms, now_ms, window_ms)

    def tiers(
        self, senders: Iterable[str], recipient: str, now_ms: int, window_ms: int
    ) -> dict[str, int]:
        """Return the `tier` of each of `senders`, as if it sent a message now."""
        return {sender: self.tier(sender, recipient, now_ms, window_ms) for sender in senders}

    def has_contact(self, recipient: str, sender: str) -> bool:
        """Return whether `recipient` ever wrote to `sender`, which then is no stranger to it."""
        received_ms = self.last_seen.get((recipient, sender))
        return sender_tier(sender, None, received_ms, 0, 0) is not UNKNOWN

    def _accepted(self, event: events.Accepted, location: Location) -> Message | None:
        self.counts["accepted"] += 1
        self.senders.note_arrival(event)
        endpoint = event.endpoint
        if not endpoint:
            return None
        message = message_from_event(event, location)
        mailbox = self.mailboxes.get(endpoint) or self.mailbox(endpoint)
        if event.chosen_id:
            self._forget_dead(mailbox, event.id)  # a retry of the same id was accepted
        mailbox.add(message)
        if message.due_us:
            self.scheduled.add(message)
        self.dirty[event.seq] = message
        return message

    def _forwarded(self, event: events.Forwarded, location: Location) -> Message:
        self.counts["forwarded"] += 1
        self.senders.note_forwarded(event)
        message = message_from_event(event, location)
        message.state, message.due_us = PENDING, 0  # it is scheduled where it is delivered
        self.outbox(event.endpoint).add(message)
        self.dirty[event.seq] = message
        return message

    def _decided(self, event: events.Decided, location: Location) -> None:
        self.counts["decided"] += 1
        outbox = self.outbox(event.endpoint)
        message = outbox.live.get(event.id)
        if message is None:
            return  # its arrival was in a deleted segment
        outbox.remove(message)
        self._mark_removed((message,))
        self.senders.note_decided(event)

    def _rejected(self, event: events.Rejected, location: Location) -> Message | None:
        self.counts[f"rejected.{event.reason}"] += event.count
        if passed_rate_limit(event) or event.origin is not None:
            self.senders.note_arrival(event)
        if event.reason not in DEAD_LETTERED or not event.kept:
            return None
        mailbox = self.mailbox(event.endpoint)
        message = message_from_event(event, location)
        message.state = DEAD
        message.queued = False
        message.cause = REJECTED
        message.reason = event.detail
        message.failed_at_us = event.at_us
        self._forget_dead(mailbox, event.id)
        mailbox.add_dead(message)
        self.dirty[event.seq] = message
        return message

    def drop_if_empty(self, mailbox: Mailbox) -> None:
        """Remove the mailbox of an unregistered endpoint after its last message."""
        if not mailbox.registered and mailbox.empty:
            self.mailboxes.pop(mailbox.subject, None)
            self.directories.remove(mailbox)

    def _find_live(self, event: events.MailboxEvent) -> tuple[Mailbox, Message | None]:
        mailbox = self.mailbox(event.endpoint)
        message = mailbox.live.get(event.id)
        if message is None:
            self.drop_if_empty(mailbox)  # its arrival was in a deleted segment
        return mailbox, message

    def _mark_removed(self, messages: Iterable[Message]) -> None:
        """Mark removed messages for the index; one never checkpointed needs no delete."""
        dirty, indexed_seq = self.dirty, self.indexed_seq
        for message in messages:
            order = message.order
            if order > indexed_seq:
                dirty.pop(order, None)
            else:
                dirty[order] = message

    def _forget_dead(self, mailbox: Mailbox, message_id: str) -> Message | None:
        message = mailbox.remove_dead(message_id)
        if message is not None:
            message.state = GONE
            self._mark_removed((message,))
        return message

    def _leased(self, event: events.Leased, location: Location) -> None:
        ids, attempt, until_us, via = event.ids, event.attempt, event.until_us, event.via
        ids = ids or (event.id,)
        self.counts["extended" if event.extended else "leased"] += len(ids)
        mailbox = self.mailbox(event.endpoint)
        live, dirty = mailbox.live, self.dirty
        for message_id in ids:
            message = live.get(message_id)
            if message is not None:
                dirty[message.order] = message
                if message.state is not LEASED:
                    message.state = LEASED
                    mailbox.leased_count += 1
                message.attempt = attempt
                message.until_us = until_us
                message.via = via
        self.drop_if_empty(mailbox)

    def _acked(self, event: events.Acked, location: Location) -> None:
        ids, at_us = event.ids or (event.id,), event.at_us
        self.counts["acked"] += len(ids)
        mailbox = self.mailbox(event.endpoint)
        acked = mailbox.remove_all(ids)
        for message in acked:
            message.arrival = message.content = None  # it is not read again
        self.waits_us.extend([at_us - max(one.at_us, one.due_us) for one in acked])
        self._mark_removed(acked)
        self.drop_if_empty(mailbox)

    def _returned(self, event: events.Returned, location: Location) -> None:
        self.counts["returned"] += 1
        mailbox, message = self._find_live(event)
        if message is not None:
            self.dirty[message.order] = message
            message.not_before_us = event.not_before_us
            if event.uncounted and message.attempt:
                message.attempt -= 1
            mailbox.requeue(message)

    def _failed(self, event: events.Failed, location: Location) -> None:
        self.counts["failed"] += 1
        self._dead_letter(event, FAILED)

    def _evicted(self, event: events.Evicted, location: Location) -> None:
        self.counts["evicted"] += 1
        self._dead_letter(event, EVICTED)

    def _dead_letter(self, event: events.Failed | events.Evicted, cause: DeadLetterCause) -> None:
        mailbox, message = self._find_live(event)
        if message is not None:
            self.scheduled.discard(message)
            self.dirty[message.order] = message
            mailbox.dead_letter(message, cause, event.reason, event.at_us)

    def _expired(self, event: events.Expired, location: Location) -> None:
        self.counts["purged" if event.was == "dead" else "expired"] += 1
        mailbox, message = self._find_live(event)
        if event.was == "dead":
            self._forget_dead(mailbox, event.id)
        elif message is not None:
            mailbox.remove(message)
            self._mark_removed((message,))
        self.drop_if_empty(mailbox)

    def _redriven(self, event: events.Redriven, location: Location) -> Message | None:
        self.counts["redriven"] += 1
        mailbox = self.mailbox(event.endpoint)
        dead = self._forget_dead(mailbox, event.id)
        if dead is None:
            return None
        is_scheduled = is_ahead(dead.due_us, event.at_us // 1000)
        message = msgspec.structs.replace(
            dead,
            order=event.seq,
            state=SCHEDULED if is_scheduled else PENDING,
            queued=True,
            attempt=0,
            not_before_us=0,
            reason="",
            failed_at_us=0,
            cause=NOT_DEAD,
        )
        mailbox.add(message)
        if is_scheduled:
            self.scheduled.add(message)
        self.dirty[message.order] = message
        return message

    def _queued(self, event: events.Queued, location: Location) -> None:
        self.counts["queued"] += 1
        mailbox, message = self._find_live(event)
        if message is not None and message.state is SCHEDULED:
            self.scheduled.discard(message)
            gone = msgspec.structs.replace(message, state=GONE, arrival=None, content=None)
            self._mark_removed((gone,))
            mailbox.queue_due(message, event.seq)
            self.dirty[message.order] = message

    def _cancelled(self, event: events.Cancelled, location: Location) -> None:
        self.counts["cancelled"] += 1
        mailbox, message = self._find_live(event)
        if message is not None and message.state is SCHEDULED:
            self.scheduled.discard(message)
            mailbox.remove(message)
            self._mark_removed((message,))
            self.drop_if_empty(mailbox)

    def _pair_seen(self, event: events.PairSeen, location: Location) -> None:
        self.senders.note_seen(event.sender, event.endpoint, event.seen_ms)

    def _owner_changed(self, event: events.OwnerChanged, location: Location) -> None:
        self.epoch = event.epoch

    def _breaker_moved(self, event: events.BreakerMoved, location: Location) -> None:
        self.counts[f"breaker.{event.before}.{event.after}"] += 1
        self.breaker_moves.append(event)

    def _endpoint_changed(self, event: events.EndpointChanged, location: Location) -> None:
        self.dirty_endpoints.add(event.endpoint)
        if event.action == "registered":
            self.restore_endpoint(event.endpoint, event.since_us or event.at_us, event.directory)
            self.mailboxes[event.endpoint].registered_seq = event.seq
            return
        mailbox = self.mailbox(event.endpoint)
        if mailbox.registered:
            mailbox.registered = False
            self.endpoints.remove(event.endpoint, self._tickets.pop(event.endpoint))
        self.drop_if_empty(mailbox)


def _no_change(event: events.AnyEvent, location: Location) -> None:
    """Change nothing: the event is for readers of the journal only."""
