"""The schedule: queues messages when they are due, and cancels them before.

Rule 1  A scheduled message is stored and counts in every limit, but is in no queue. When it is due,
        it goes to the end of its queue: its position is that of its delivery. That is journaled.
Rule 2  Messages that are due at the same time are queued in the order of their acceptance, also
        those that became due while the relay was closed.
Rule 3  Its sender may cancel it until then, and so may the operator. The sender is who published
        it, not who claims so.
"""

from collections.abc import Iterable

from waypost.policy.bounds import lease_max_messages
from waypost.relay.clock import Cancel, Timers
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.state.ledger import Ledger


class Schedule:
    """Queues scheduled messages when they are due."""

    def __init__(self, ledger: Ledger, transitions: Transitions, timers: Timers) -> None:
        self._ledger = ledger
        self._scheduled = ledger.state.scheduled
        self._transitions = transitions
        self._timers = timers
        self._cancel_timer: Cancel | None = None
        self._timer_at_us = 0
        transitions.on_scheduled = self.set_timer

    def cancel(self, ids: str | Iterable[str], sender: str | None) -> list[str]:
        """Cancel scheduled messages of `sender`, or as the operator of any; return their ids.

        A message that was published to a pattern is cancelled at every endpoint.
        """
        wanted = (ids,) if isinstance(ids, str) else dict.fromkeys(ids)
        found = self._scheduled.find(wanted, sender)
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
        self._cancel_timer = self._timers.call_at(first.due_us, self.queue_due)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._cancel_timer is not None:
            self._cancel_timer()
        self._cancel_timer, self._timer_at_us = None, 0

    def queue_due(self) -> None:
        """Queue the messages that are due; other tasks get their turn after many of them.

        Every sweep does so, too: a timer does not notice that the clock was set, or the machine
        suspended.
        """
        self.stop()
        if self._ledger.journal.failure is not None:
            return
        now_us = self._ledger.now_us()
        for _ in range(lease_max_messages):
            message = self._scheduled.first()
            if message is None or message.due_us > now_us:
                break
            self._transitions.queue_due(message)
        self.set_timer()
