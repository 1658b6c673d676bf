"""The schedule: messages that are delivered later, listed and cancelled until they are due.

Rule 1  A scheduled message is stored and counts in every limit, but is in no queue. When it is due,
        it goes to the end of its queue: its position is that of its delivery. That is journaled.
Rule 2  Messages that are due at the same time are queued in the order of their acceptance, also
        those that became due while the relay was closed.
Rule 3  Its sender may cancel it until then, and so may the operator. The sender is who published
        it, not who claims so.
"""

import heapq
from collections.abc import Iterable

from waypost.policy.bounds import lease_max_messages
from waypost.relay.clock import Cancel, Timers
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import RelayError
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Message
from waypost.relay.state.payloads import PayloadStore
from waypost.wire.envelopes import instant
from waypost.wire.scheduled import ScheduledMessage


class Schedule:
    """Queues scheduled messages when they are due."""

    def __init__(
        self, ledger: Ledger, transitions: Transitions, payloads: PayloadStore, timers: Timers
    ) -> None:
        self._ledger = ledger
        self._payloads = payloads
        self._scheduled = ledger.state.scheduled
        self._transitions = transitions
        self._timers = timers
        self._cancel_timer: Cancel | None = None
        self._timer_at_us = 0
        transitions.on_scheduled = self.set_timer

    def listing(
        self, sender: str | None = None, limit: int | None = None
    ) -> list[ScheduledMessage]:
        """Return scheduled messages of one sender, or all: those due first, at most `limit`."""
        found = self._scheduled.of(sender)
        if limit is None:
            chosen = sorted(found, key=_due)
        else:
            chosen = heapq.nsmallest(limit, found, key=_due)
        return [self._describe(message) for message in chosen]

    def cancel(self, ids: str | Iterable[str], sender: str | None) -> list[str]:
        """Cancel scheduled messages of `sender`, or as the operator of any; return their ids.

        A message that was published to a pattern is cancelled at every endpoint.
        """
        wanted = {ids} if isinstance(ids, str) else set(ids)
        found = [one for one in self._scheduled.of(sender) if one.id in wanted]
        for message in found:
            self._transitions.cancel(message, "operator" if sender is None else "sender")
        return list(dict.fromkeys(one.id for one in found))

    def set_timer(self) -> None:
        """Set the timer for the message that is due first."""
        first = self._scheduled.first()
        if first is None or 0 < self._timer_at_us <= first.due_us:
            return
        self.stop()
        self._timer_at_us = first.due_us
        self._cancel_timer = self._timers.call_at(first.due_us, self._queue_due)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None

    def _describe(self, message: Message) -> ScheduledMessage:
        return ScheduledMessage(
            id=message.id,
            sender=message.sender,
            subject=self._subject(message),
            endpoint=message.endpoint,
            size=message.size,
            accepted_at=instant(message.at_us),
            deliver_at=instant(message.due_us),
        )

    def _subject(self, message: Message) -> str:
        """Return what a message was published to; empty if its line in the journal is damaged."""
        if message.cached is not None:
            return message.cached[0].subject
        try:
            return self._payloads.read_arrival(message.location).subject
        except (RelayError, OSError):
            return ""

    def _queue_due(self) -> None:
        """Queue the messages that are due; other tasks get their turn after many of them."""
        self._cancel_timer, self._timer_at_us = None, 0
        if self._ledger.journal.failure is not None:
            return
        now_us = self._ledger.now_us()
        for _ in range(lease_max_messages):
            message = self._scheduled.first()
            if message is None or message.due_us > now_us:
                break
            self._transitions.queue_due(message)
        self.set_timer()


def _due(message: Message) -> tuple[int, int]:
    return message.due_us, message.order
