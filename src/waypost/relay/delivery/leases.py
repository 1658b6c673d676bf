"""Leases: messages delivered with a deadline by which they must be acknowledged.

At least once: a lease that is not acknowledged in time, or that was open when the relay stopped,
returns to its queue position under the same id, until it was delivered too often.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from waypost.policy.bounds import lease_max_messages
from waypost.policy.errors import InvalidInput
from waypost.policy.settings import Settings
from waypost.relay.clock import Timers, to_microseconds
from waypost.relay.delivery.claims import Claims
from waypost.relay.delivery.deadlines import Deadline, Deadlines
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import RelayError
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import LEASED, Mailbox, Message
from waypost.relay.state.payloads import PayloadStore, envelope_of
from waypost.wire.envelopes import Envelope

VIA = "lease"


T = TypeVar("T")


class LeasedMessage(msgspec.Struct, frozen=True, gc=False):
    """A leased message, the id of the message it follows from, and its stored size in bytes."""

    envelope: Envelope
    parent: str | None
    size: int


class Leases:
    """Leases messages to callers, and returns those whose deadline has passed."""

    def __init__(
        self,
        ledger: Ledger,
        claims: Claims,
        transitions: Transitions,
        payloads: PayloadStore,
        timers: Timers,
        settings: Callable[[], Settings],
    ) -> None:
        self._ledger = ledger
        self._claims = claims
        self._transitions = transitions
        self._payloads = payloads
        self._timers = timers
        self._settings = settings
        self._deadlines = Deadlines(timers, ledger.now_us, self._time_out)
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._stopped = False
        ledger.listeners.on_visible(self._wake_waiters)

    async def lease(
        self,
        subject: str,
        limit: int,
        max_size_bytes: int | None,
        wait_s: float,
        max_bytes: int | None,
        read: Callable[[Message], T],
    ) -> list[T]:
        """Lease up to `limit` messages, waiting up to `wait_s` for the first; `read` each.

        Together they have at most `max_bytes`, unless the first alone has more. A message whose
        `read` fails becomes a dead letter.
        """
        wanted: object = limit
        if not isinstance(wanted, int) or not 1 <= wanted <= lease_max_messages:
            raise InvalidInput(f"limit must be 1 to {lease_max_messages:,}, not {limit!r}")
        until_us = self._ledger.now_us() + to_microseconds("wait", wait_s)
        taken = self._lease_now(subject, limit, max_size_bytes, max_bytes, read)
        while not taken and self._ledger.now_us() < until_us:
            if not await self._wait_for_messages(subject, until_us) or self._stopped:
                break
            taken = self._lease_now(subject, limit, max_size_bytes, max_bytes, read)
        waiting = self._ledger.journal.unconfirmed()
        if waiting is not None:
            await waiting
        return taken

    def read(self, message: Message) -> LeasedMessage:
        """Return a leased message with its parent and size."""
        event, content = self._payloads.read(message)
        envelope = envelope_of(event, msgspec.json.decode(content), message.attempt)
        return LeasedMessage(envelope, event.parent, message.size)

    def extend(self, subject: str, ids: str | Iterable[str], seconds: float) -> list[Message]:
        """Extend leases to end after `seconds` at the earliest; return the messages leased now."""
        leased, extended = self._claims.extend(subject, ids, seconds)
        for message in extended:
            if message.via == VIA:
                self._deadlines.add((message.until_us, subject, (message.id,)))
        self._deadlines.set_timer()
        return leased

    def time_out(self) -> None:
        """Return every leased message whose deadline has passed."""
        self._deadlines.run_due()

    def stop(self) -> None:
        """End every wait without messages, and set no more timers."""
        self._stopped = True
        self._deadlines.stop()
        for subject in list(self._waiters):
            self._wake_waiters(subject)

    def _lease_now(
        self,
        subject: str,
        limit: int,
        max_size_bytes: int | None,
        max_bytes: int | None,
        read: Callable[[Message], T],
    ) -> list[T]:
        mailbox = self._claims.mailbox(subject)
        if max_bytes is not None:
            limit = _fitting(mailbox, limit, max_size_bytes, max_bytes)
        lease_us = self._settings().lease_timeout_ms * 1000
        claimed = self._claims.claim(
            mailbox, limit, VIA, max_size_bytes=max_size_bytes, lease_us=lease_us
        )
        if claimed:  # at once, so until the same time
            ids = tuple([message.id for message in claimed])
            self._deadlines.add((claimed[0].until_us, subject, ids))
            self._deadlines.set_timer()
        leased = []
        for message in claimed:
            try:
                leased.append(read(message))
            except (RelayError, OSError) as problem:
                self._claims.on_unreadable(message, problem, VIA)
        return leased

    def _time_out(self, due: list[Deadline[tuple[str, ...]]]) -> None:
        for until_us, subject, ids in due:
            mailbox = self._ledger.state.mailboxes.get(subject)
            live = {} if mailbox is None else mailbox.live
            for message in [live[one] for one in ids if one in live]:
                is_leased = message.state is LEASED and message.via == VIA
                if is_leased and message.until_us == until_us:
                    self._claims.returns.fail(message, "lease timed out", VIA)

    async def _wait_for_messages(self, subject: str, until_us: int) -> bool:
        """Wait until `subject` may have messages; return False if that takes too long."""
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

    def _wake_waiters(self, subject: str) -> None:
        for waiter in self._waiters.pop(subject, ()):
            if not waiter.done():
                waiter.set_result(None)


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
