"""Signs of life of connected agents: who acknowledges nothing is stuck.

Rule 1  A consumer with messages in flight has to ack, nack or extend one of them in time; the
        policy knows until when (`policy.leases`).
Rule 2  If it does not, it is stuck: its messages return, and it gets no more until it shows life.
Rule 3  A consumer that is stuck for `close_stuck_after_ms` is abandoned: its connection is to end.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from waypost.policy.leases import agent_deadline_us
from waypost.policy.settings import Settings
from waypost.relay.clock import Timers
from waypost.relay.delivery.deadlines import Deadline, Deadlines
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Message

log = logging.getLogger("waypost.relay")


class WatchedConsumer(Protocol):
    """A consumer; `key` is its own, `alive_us` its last sign of life, in µs since the epoch.

    `stuck_since_us` is 0 while it is not stuck.
    """

    subject: str
    key: str
    in_flight: dict[str, Message]
    alive_us: int
    stuck_since_us: int
    on_abandoned: Callable[[], None]

    def prune(self) -> bool: ...
    def become_stuck(self, now_us: int, reason: str) -> None: ...


class LifeSigns:
    """Watches the consumers that have messages in flight."""

    def __init__(self, ledger: Ledger, timers: Timers, settings: Callable[[], Settings]) -> None:
        self._ledger = ledger
        self._settings = settings
        self._watched: dict[str, tuple[WatchedConsumer, int]] = {}
        self._deadlines = Deadlines(timers, ledger.now_us, self._on_due)

    def watch(self, consumer: WatchedConsumer) -> None:
        """Expect a sign of life from a consumer whose only messages in flight were sent now."""
        consumer.alive_us = self._ledger.now_us()
        if consumer.key not in self._watched:
            self._check_at(consumer, consumer.alive_us + self._timeout_us())

    def show(self, consumer: WatchedConsumer) -> None:
        """Record a sign of life; a stuck consumer may get messages again."""
        consumer.alive_us = self._ledger.now_us()
        if consumer.stuck_since_us:
            consumer.stuck_since_us = 0
            self.forget(consumer)
            self._ledger.wake(consumer.subject)

    def forget(self, consumer: WatchedConsumer) -> None:
        """Expect no sign of life any more."""
        self._watched.pop(consumer.key, None)

    def check(self, consumer: WatchedConsumer) -> None:
        """End what has lasted too long, and set the next deadline of a consumer."""
        now_us, closing_us = self._ledger.now_us(), self._settings().close_stuck_after_ms * 1000
        self.forget(consumer)
        if not consumer.stuck_since_us:
            due_us = self._due_us(consumer, now_us)
            if due_us > now_us:
                self._check_at(consumer, due_us)
            if not due_us or due_us > now_us:
                return
            silent_s = (now_us - consumer.alive_us) / 1_000_000
            log.warning("%s is stuck: no ack for %.1f s", consumer.subject, silent_s)
            consumer.become_stuck(now_us, f"lease timed out: no sign of life for {silent_s:.1f} s")
        if now_us < consumer.stuck_since_us + closing_us:
            self._check_at(consumer, consumer.stuck_since_us + closing_us)
        elif closing_us:
            consumer.on_abandoned()

    def check_all(self) -> None:
        """Check every consumer: the settings may have changed."""
        for consumer, _ in list(self._watched.values()):
            self.check(consumer)

    def time_out(self) -> None:
        """Check the consumers whose deadline has passed."""
        self._deadlines.run_due()

    def stop(self) -> None:
        """Set no more timers."""
        self._deadlines.stop()

    def _due_us(self, consumer: WatchedConsumer, now_us: int) -> int:
        """Return the deadline of a consumer; 0 without messages in flight."""
        if consumer.prune():
            consumer.alive_us = now_us  # others, or it over HTTP, took messages out of its hands
        in_flight: Mapping[str, Message] = consumer.in_flight
        if not in_flight:
            return 0
        extended_us = max(one.until_us for one in in_flight.values())
        return agent_deadline_us(consumer.alive_us, self._timeout_us(), extended_us)

    def _on_due(self, due: list[Deadline[str]]) -> None:
        for at_us, _, key in due:
            watched = self._watched.get(key)
            if watched is not None and watched[1] == at_us:
                self.check(watched[0])

    def _check_at(self, consumer: WatchedConsumer, at_us: int) -> None:
        self._watched[consumer.key] = (consumer, at_us)
        self._deadlines.add((at_us, consumer.subject, consumer.key))
        self._deadlines.set_timer()

    def _timeout_us(self) -> int:
        return self._settings().lease_timeout_ms * 1000
