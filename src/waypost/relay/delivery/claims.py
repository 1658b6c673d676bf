"""Claims: taking messages out of a mailbox, and acknowledging or returning them.

Leases, attached consumers and handlers all take messages this way; `via` records which.

Rule 1  Messages are claimed in the order of the mailbox, once they are durable.
Rule 2  Expired messages found on the way are expired, not claimed.
Rule 3  A returned message keeps its id and its queue position.
Rule 4  While the deliveries of a mailbox pause, only handlers claim its messages.
"""

from collections.abc import Iterable

from waypost.files import is_transient
from waypost.relay.clock import to_microseconds
from waypost.relay.delivery.returns import Returns
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import UnknownEndpoint
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import LEASED, NO_LIMIT, SCHEDULED, Mailbox, Message

_RETRY_S = 1.0


class Claims:
    """Claims messages for consumers of every kind."""

    def __init__(self, ledger: Ledger, transitions: Transitions, returns: Returns) -> None:
        self._ledger = ledger
        self._transitions = transitions
        self.returns = returns

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
        if not mailbox.queue or (via != "handler" and self.returns.is_paused(mailbox.subject)):
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
        if messages:
            self.returns.on_acked(subject)
        return messages

    def nack(
        self, subject: str, ids: str | Iterable[str], delay_s: float, via: str = "lease"
    ) -> list[Message]:
        """Return leased messages whose delivery failed, for `delay_s` at least.

        One that was delivered too often becomes a dead letter.
        """
        delay_us = to_microseconds("delay", delay_s)
        messages = self._leased(subject, ids)
        for message in messages:
            self.returns.fail(message, "nack", via, delay_us)
        return messages

    def release(
        self, subject: str, ids: str | Iterable[str], delay_s: float = 0.0
    ) -> list[Message]:
        """Return leased messages without a verdict, for `delay_s` at least."""
        delay_us = to_microseconds("delay", delay_s)
        messages = self._leased(subject, ids)
        self.returns.release(messages, "released", delay_us)
        return messages

    def on_unreadable(self, message: Message, problem: Exception, via: str) -> None:
        """Turn an unreadable message into a dead letter, unless it can be read later.

        It can if only a descriptor was missing; then it returns to its queue for a moment.
        """
        if is_transient(problem):
            self.release(message.endpoint, message.id, _RETRY_S)
        else:
            self._transitions.fail(message, f"unreadable: {problem}", via=via, uncounted=True)

    def _leased(self, subject: str, ids: str | Iterable[str]) -> list[Message]:
        return [one for one in _live(self.mailbox(subject), ids) if one.state is LEASED]


def _live(mailbox: Mailbox, ids: str | Iterable[str]) -> list[Message]:
    """Return the messages of `ids` that are in the mailbox and due, each once."""
    live = mailbox.live
    wanted = (ids,) if isinstance(ids, str) else dict.fromkeys(ids)
    found = [live[message_id] for message_id in wanted if message_id in live]
    if mailbox.scheduled_count:
        return [one for one in found if one.state is not SCHEDULED]
    return found
