"""Claims: taking messages out of a mailbox, and acknowledging or returning them.

Leases, attached consumers and handlers all take messages this way; `via` records which.

Rule 1  Messages are claimed in the order of the mailbox, once they are durable. Only an answer is
        claimed ahead, for the worker of a pool that asked.
Rule 2  Expired messages found on the way are expired, not claimed.
Rule 3  A returned message keeps its id and its queue position.
Rule 4  While the deliveries of a mailbox pause, only handlers claim its messages.
"""

from collections.abc import Callable, Iterable

from waypost.files import is_transient
from waypost.policy.bounds import lease_extension_max_s
from waypost.policy.errors import InvalidInput
from waypost.policy.leases import extended_until_us
from waypost.policy.settings import Settings
from waypost.relay.clock import to_microseconds
from waypost.relay.delivery.returns import Returns
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import UnknownEndpoint
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import LEASED, NO_LIMIT, PENDING, SCHEDULED, Mailbox, Message
from waypost.wire.printable import error_text

_RETRY_S = 1.0


class Claims:
    """Claims messages for consumers of every kind."""

    def __init__(
        self,
        ledger: Ledger,
        transitions: Transitions,
        returns: Returns,
        settings: Callable[[], Settings],
    ) -> None:
        self._ledger = ledger
        self._transitions = transitions
        self._settings = settings
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

    def claim_ahead(self, mailbox: Mailbox, message: Message, via: str) -> bool:
        """Lease one durable message ahead of others; return False if it cannot be leased now."""
        now_us = self._ledger.now_us()
        is_due = message.not_before_us <= now_us and message.ttl >= now_us // 1000
        if message.state is not PENDING or not is_due or self.returns.is_paused(mailbox.subject):
            return False
        self._transitions.lease(mailbox, [message], via, 0)
        return True

    def ack(self, subject: str, ids: str | Iterable[str], via: str = "lease") -> list[Message]:
        """Acknowledge messages, leased or not; return those that were still in the mailbox."""
        mailbox = self.mailbox(subject)
        messages = _live(mailbox, ids)
        self._transitions.ack(mailbox, messages, via)
        if messages:
            self.returns.on_acked(subject)
        return messages

    def nack(
        self,
        subject: str,
        ids: str | Iterable[str],
        delay_s: float,
        error: str | BaseException = "",
        via: str = "lease",
    ) -> list[Message]:
        """Return leased messages that failed with `error`, for `delay_s` at least.

        One that was delivered too often becomes a dead letter.
        """
        delay_us, text = to_microseconds("delay", delay_s), error_text(error)
        messages = self._leased(subject, ids)
        for message in messages:
            self.returns.nack(message, text, via, delay_us)
        return messages

    def extend(
        self, subject: str, ids: str | Iterable[str], seconds: float
    ) -> tuple[list[Message], list[Message]]:
        """Extend leases to end after `seconds` at the earliest.

        Return the messages that are leased, and those whose lease ended earlier before. A handler's
        message has no deadline.
        """
        extension_us = to_microseconds("seconds", seconds)
        if extension_us > lease_extension_max_s * 1_000_000:
            raise InvalidInput(f"extend by at most {lease_extension_max_s:,} seconds")
        now_us, timeout_us = self._ledger.now_us(), self._settings().lease_timeout_ms * 1000
        messages = [one for one in self._leased(subject, ids) if one.via != "handler"]
        extended = []
        for message in messages:
            until_us = extended_until_us(message.until_us, now_us, extension_us, timeout_us)
            if until_us != message.until_us:
                self._transitions.extend(message, until_us)
                extended.append(message)
        return messages, extended

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
