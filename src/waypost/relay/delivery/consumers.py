"""Attached consumers of all mailboxes: one per connection, for as long as it lasts.

A mailbox has at most one attached consumer, or several that share it (`pools`). They are notified
of new messages.
"""

from collections.abc import Callable
from itertools import count

from waypost.policy.settings import Settings
from waypost.relay.delivery.claims import Claims
from waypost.relay.delivery.consumer import VIA, Consumer, Delivering
from waypost.relay.delivery.life_signs import LifeSigns
from waypost.relay.delivery.pools import Pool
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.errors import MailboxTaken, PoolFull, RelayError
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import LEASED, Message
from waypost.relay.state.payloads import PayloadStore
from waypost.relay.state.recent import RecentlyAcked
from waypost.wire.events import SessionChanged


class Consumers:
    """The attached consumers of all mailboxes."""

    def __init__(  # noqa: PLR0913 - what delivery to consumers touches
        self,
        ledger: Ledger,
        claims: Claims,
        transitions: Transitions,
        payloads: PayloadStore,
        acked: RecentlyAcked,
        *,
        life: LifeSigns,
        settings: Callable[[], Settings],
        on_left: Callable[[], None],
    ) -> None:
        """Take `on_left`, which is called after a consumer has detached."""
        self._ledger = ledger
        self._claims = claims
        self._payloads = payloads
        self._life = life
        self._settings = settings
        self._on_left = on_left
        self._delivering = Delivering(claims, transitions, payloads, acked, life, self._remove)
        self._pools: dict[str, Pool[Consumer]] = {}
        self._keys = count(1)
        ledger.listeners.on_visible(self._notify)

    def attach(
        self, subject: str, on_arrival: Callable[[], None], *, shared: bool = False
    ) -> Consumer:
        """Attach a consumer to `subject`; call `on_arrival` when there may be messages.

        Raise `UnknownEndpoint`, `MailboxTaken`, or `PoolFull`.
        """
        self._claims.mailbox(subject)
        pool = self._pools.get(subject)
        if pool is None:
            pool = self._pools[subject] = Pool(subject, shared=shared)
            self._record(subject, "connected")
            pool.begin(self._ledger.state.seq)
        elif not (shared and pool.shared):
            raise MailboxTaken(subject)
        elif len(pool.workers) >= self._settings().max_workers:
            raise PoolFull(subject, self._settings().max_workers)
        consumer = Consumer(self._delivering, subject, str(next(self._keys)), pool, on_arrival)
        pool.workers[consumer] = None
        return consumer

    def is_attached(self, subject: str) -> bool:
        """Return whether `subject` has an attached consumer."""
        return subject in self._pools

    def release_leases(self, subject: str) -> int:
        """Return the leased messages of `subject`, but not those of handlers; return how many.

        Consumers are treated as stuck. Raise `UnknownEndpoint`.
        """
        mailbox, reason = self._claims.mailbox(subject), "released by the operator"
        leased = [one for one in mailbox.live.values() if one.state is LEASED]
        taken = [one for one in reversed(leased) if one.via != "handler"]
        pool = self._pools.get(subject)
        for consumer in list(pool.workers) if pool is not None else ():
            consumer.lose_all(self._ledger.now_us())
            self._life.check(consumer)
        self._claims.returns.release(taken, reason)
        return len(taken)

    def detach_all(self) -> None:
        """Detach every consumer, because the relay stops."""
        for pool in list(self._pools.values()):
            for consumer in list(pool.workers):
                consumer.detach(stopping=True)

    def _remove(self, consumer: Consumer, reason: str) -> bool:
        """Remove `consumer`; return whether it was attached."""
        pool = self._pools.get(consumer.subject)
        if pool is None or consumer not in pool.workers:
            return False
        del pool.workers[consumer]
        self._life.forget(consumer)
        if not pool.workers:
            del self._pools[consumer.subject]
            self._record(consumer.subject, "disconnected", reason)
        self._on_left()
        return True

    def _notify(self, subject: str) -> None:
        """Notify the consumers of `subject`."""
        pool = self._pools.get(subject)
        if pool is None:
            return
        if pool.shared:
            self._assign_answers(subject, pool)
        pool.notify()

    def _assign_answers(self, subject: str, pool: Pool[Consumer]) -> None:
        """Lease new answers to the workers that asked."""
        mailbox = self._ledger.state.mailboxes.get(subject)
        if mailbox is None:
            return
        answers = pool.new_answers(mailbox, self._claims.committed_seq(), self._parent_of)
        for asker, message in answers:
            if asker.has_room and self._claims.claim_ahead(mailbox, message, VIA):
                asker.assign(message)

    def _parent_of(self, message: Message) -> str | None:
        try:
            return self._payloads.read(message)[0].parent
        except (RelayError, OSError):
            return None  # the worker that takes it finds out

    def _record(self, subject: str, action: str, reason: str = "") -> None:
        now_us = self._ledger.now_us()
        self._ledger.record(
            SessionChanged(at_us=now_us, subject=subject, action=action, reason=reason)
        )
