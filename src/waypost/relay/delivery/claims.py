"""Claims: taking messages out of a mailbox, and acknowledging or returning them.

Leases, attached consumers and handlers all take messages this way; `via` records which.

Rule 1  Messages are claimed in the order of the mailbox, once they are durable.
Rule 2  Expired messages found on the way are expired, not claimed.
Rule 3  A returned message keeps its id and its queue position.
"""

from collections.abc import Iterable

from waypost.relay.clock import Timers, to_microseconds
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import UnknownEndpoint
from waypost.relay.state.index import all_messages
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import LEASED, NO_LIMIT, Mailbox, Message


class Claims:
    """Claims messages for consumers of every kind."""

    def __init__(self, ledger: Ledger, transitions: Transitions, timers: Timers) -> None:
        self._ledger = ledger
        self._transitions = transitions
        self._timers = timers

    def mailbox(self, subject: str) -> Mailbox:
        """Return the mailbox of an endpoint that is registered or still holds messages."""
        mailbox = self._ledger.state.mailboxes.get(subject)
        if mailbox is None:
            raise UnknownEndpoint(subject)
        return mailbox

    def committed_seq(self) -> int:
        """Return the number of the last durable event."""
        return self._ledger.journal.committed.seq

    def claim(
        self,
        mailbox: Mailbox,
        limit: int,
        via: str,
        *,
        max_size_bytes: int | None = None,
        enough_bytes: int = NO_LIMIT,
        lease_us: int = 0,
    ) -> list[Message]:
        """Lease up to `limit` messages for `lease_us`; 0 is without a deadline.

        Messages larger than `max_size_bytes` are passed over; the claim ends early once it has
        `enough_bytes`.
        """
        if not mailbox.queue:
            return []
        now_us = self._ledger.now_us()
        committed = self._ledger.journal.committed.seq
        taken, expired = mailbox.take(limit, max_size_bytes, now_us, committed, enough_bytes)
        for message in expired:
            self._transitions.expire(message)
        self._transitions.lease(mailbox, taken, via, now_us + lease_us if lease_us else 0)
        return taken

    def ack(self, subject: str, ids: str | Iterable[str], via: str = "lease") -> list[Message]:
        """Acknowledge messages, leased or not; return those that were still in the mailbox."""
        mailbox = self.mailbox(subject)
        messages = _live(mailbox, ids)
        self._transitions.ack(mailbox, messages, via)
        return messages

    def nack(self, subject: str, ids: str | Iterable[str], delay_s: float) -> list[Message]:
        """Return leased messages to the queue, to be delivered after `delay_s` at the earliest."""
        delay_us = to_microseconds("delay", delay_s)
        not_before_us = self._ledger.now_us() + delay_us if delay_us else 0
        messages = [m for m in _live(self.mailbox(subject), ids) if m.state is LEASED]
        for message in messages:
            self._transitions.release(message, "nack", not_before_us)
        if messages and not_before_us:
            self._notify_at(subject, not_before_us)
        return messages

    def resume_delays(self) -> None:
        """Set the timers of messages that were delayed before the relay was opened."""
        now_us = self._ledger.now_us()
        delays = {
            (message.endpoint, message.not_before_us)
            for message in all_messages(self._ledger.state)
            if message.not_before_us > now_us
        }
        for subject, not_before_us in delays:
            self._notify_at(subject, not_before_us)

    def _notify_at(self, subject: str, at_us: int) -> None:
        self._timers.call_at(at_us, lambda: self._ledger.listeners.visible(subject))


def _live(mailbox: Mailbox, ids: str | Iterable[str]) -> list[Message]:
    """Return the messages of `ids` that are in the mailbox, each once."""
    live = mailbox.live
    wanted = (ids,) if isinstance(ids, str) else dict.fromkeys(ids)
    return [live[message_id] for message_id in wanted if message_id in live]
