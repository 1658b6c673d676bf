"""Leases: messages handed to consumers who say later what became of them.

At least once: a lease that is not acknowledged in time, or whose relay restarts, comes back
under the same id, at its old place in line.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable

import msgspec

from waypost.policy.bounds import lease_max_messages
from waypost.policy.errors import InvalidInput
from waypost.policy.settings import Settings
from waypost.relay.clock import Cancel, Timers, microseconds
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import RelayError, UnknownEndpoint
from waypost.relay.state.index import all_messages
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import LEASED, NO_LIMIT, Mailbox, Message
from waypost.relay.state.payloads import PayloadStore, envelope_of
from waypost.wire.envelopes import Envelope


class LeasedMessage(msgspec.Struct, frozen=True):
    """A leased message, the id of the message it follows from, and its stored size in bytes."""

    envelope: Envelope
    parent: str | None
    size: int


class Leases:
    """Hands messages out, takes them back."""

    def __init__(
        self,
        ledger: Ledger,
        transitions: Transitions,
        payloads: PayloadStore,
        timers: Timers,
        settings: Callable[[], Settings],
    ) -> None:
        self._ledger = ledger
        self._transitions = transitions
        self._payloads = payloads
        self._timers = timers
        self._settings = settings
        self._deadlines: list[tuple[int, str, str, int]] = []
        self._cancel_timer: Cancel | None = None
        self._timer_at_us = 0
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._stopped = False
        ledger.listeners.on_visible(self._wake_waiters)

    def mailbox(self, subject: str) -> Mailbox:
        """The mailbox of an endpoint that is, or was, registered."""
        mailbox = self._ledger.state.mailboxes.get(subject)
        if mailbox is None:
            raise UnknownEndpoint(subject)
        return mailbox

    def committed(self) -> int:
        """Up to which event everything is on disk."""
        return self._ledger.journal.committed.seq

    async def lease(
        self,
        subject: str,
        limit: int,
        max_size_bytes: int | None,
        wait_s: float,
        max_bytes: int | None = None,
    ) -> list[LeasedMessage]:
        """Lease up to `limit` messages, waiting up to `wait_s` for the first.

        Together they have at most `max_bytes`, unless the first alone has more.
        """
        wanted: object = limit
        if not isinstance(wanted, int) or not 1 <= wanted <= lease_max_messages:
            raise InvalidInput(f"limit must be 1 to {lease_max_messages:,}, not {limit!r}")
        until_us = self._ledger.now_us() + microseconds("wait", wait_s)
        taken = self._lease_now(subject, limit, max_size_bytes, max_bytes)
        while not taken and self._ledger.now_us() < until_us:
            if not await self._arrival(subject, until_us) or self._stopped:
                break
            taken = self._lease_now(subject, limit, max_size_bytes, max_bytes)
        return taken

    def claim(
        self,
        mailbox: Mailbox,
        limit: int,
        max_size_bytes: int | None = None,
        via: str = "lease",
        enough_bytes: int = NO_LIMIT,
    ) -> list[Message]:
        """Take messages out of line; only plain leases have a deadline."""
        if not mailbox.queue:
            return []
        now_us = self._ledger.now_us()
        committed = self._ledger.journal.committed.seq
        taken, expired = mailbox.take(limit, max_size_bytes, now_us, committed, enough_bytes)
        for message in expired:
            self._transitions.expire(message)
        until_us = now_us + self._settings().lease_timeout_ms * 1000 if via == "lease" else 0
        self._transitions.lease(mailbox, taken, via, until_us)
        if until_us:
            for message in taken:
                deadline = (until_us, message.endpoint, message.id, message.attempt)
                heapq.heappush(self._deadlines, deadline)
            self._arm()
        return taken

    def ack(self, subject: str, ids: str | Iterable[str], via: str = "lease") -> list[Message]:
        """These are done; returns those that were still there."""
        mailbox = self.mailbox(subject)
        messages = _live(mailbox, ids)
        self._transitions.ack(mailbox, messages, via)
        return messages

    def nack(self, subject: str, ids: str | Iterable[str], delay_s: float) -> list[Message]:
        """These were not done: they wait again, not before `delay_s` has passed."""
        delay_us = microseconds("delay", delay_s)
        not_before_us = self._ledger.now_us() + delay_us if delay_us else 0
        messages = [m for m in _live(self.mailbox(subject), ids) if m.state is LEASED]
        for message in messages:
            self._transitions.release(message, "nack", not_before_us)
        if messages and not_before_us:
            self._wake_at(subject, not_before_us)
        return messages

    def resume(self) -> None:
        """Set the timers of delays from before the relay was opened."""
        now_us = self._ledger.now_us()
        delays = {
            (message.endpoint, message.not_before_us)
            for message in all_messages(self._ledger.state)
            if message.not_before_us > now_us
        }
        for subject, not_before_us in delays:
            self._wake_at(subject, not_before_us)

    def _wake_waiters(self, subject: str) -> None:
        for waiter in self._waiters.pop(subject, ()):
            if not waiter.done():
                waiter.set_result(None)

    def time_out(self) -> int:
        """Take back every lease whose deadline has passed; returns how many."""
        now_us = self._ledger.now_us()
        returned = 0
        while self._deadlines and self._deadlines[0][0] <= now_us:
            _, endpoint, message_id, attempt = heapq.heappop(self._deadlines)
            message = self._ledger.state.leased.get((endpoint, message_id))
            if message is not None and message.attempt == attempt and message.until_us:
                self._transitions.release(message, "lease timed out")
                returned += 1
        self._timer_at_us = 0
        self._arm()
        return returned

    def stop(self) -> None:
        """Wake everyone, with nothing, and set no more timers."""
        self._stopped = True
        if self._cancel_timer is not None:
            self._cancel_timer()
        for subject in list(self._waiters):
            self._wake_waiters(subject)

    def _wake_at(self, subject: str, at_us: int) -> None:
        self._timers.call_at(at_us, lambda: self._ledger.listeners.visible(subject))

    def _lease_now(
        self, subject: str, limit: int, max_size_bytes: int | None, max_bytes: int | None
    ) -> list[LeasedMessage]:
        mailbox = self.mailbox(subject)
        if max_bytes is not None:
            limit = _fitting(mailbox, limit, max_size_bytes, max_bytes)
        leased = []
        for message in self.claim(mailbox, limit, max_size_bytes):
            try:
                event, content = self._payloads.read(message)
            except (RelayError, OSError) as problem:
                self._transitions.fail(message, f"unreadable: {problem}", via="lease")
                continue
            envelope = envelope_of(event, msgspec.json.decode(content))
            leased.append(LeasedMessage(envelope, event.parent, message.size))
        return leased

    async def _arrival(self, subject: str, until_us: int) -> bool:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(subject, []).append(waiter)
        try:
            return await self._timers.wait(waiter, until_us)
        finally:
            waiting = self._waiters.get(subject)
            if waiting and waiter in waiting:
                waiting.remove(waiter)
                if not waiting:
                    del self._waiters[subject]

    def _arm(self) -> None:
        if not self._deadlines:
            return
        next_us = self._deadlines[0][0]
        if self._timer_at_us and self._timer_at_us <= next_us:
            return
        if self._cancel_timer is not None:
            self._cancel_timer()
        self._timer_at_us = next_us
        self._cancel_timer = self._timers.call_at(next_us, lambda: void(self.time_out()))


def _fitting(mailbox: Mailbox, limit: int, max_size_bytes: int | None, max_bytes: int) -> int:
    """Return how many of the next `limit` pending messages fit into `max_bytes`, at least one."""
    count = 0
    for message in mailbox.pending():
        if max_size_bytes is not None and message.size > max_size_bytes:
            continue
        max_bytes -= message.size
        if max_bytes < 0 or count == limit:
            return max(1, count)
        count += 1
    return limit


def _live(mailbox: Mailbox, ids: str | Iterable[str]) -> list[Message]:
    """Those of `ids` that are in the mailbox, each once."""
    live = mailbox.live
    wanted = (ids,) if isinstance(ids, str) else dict.fromkeys(ids)
    return [live[message_id] for message_id in wanted if message_id in live]


def void(_: object) -> None:
    """For callbacks whose result nobody wants."""
