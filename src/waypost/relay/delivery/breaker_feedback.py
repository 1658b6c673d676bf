"""What deliveries came to, told to the circuit breakers; their moves go into the journal."""

import logging

from waypost.policy.breakers import CircuitBreakers, Transition
from waypost.policy.settings import Settings
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Message
from waypost.wire.events import BreakerMoved

log = logging.getLogger("waypost.relay")


class BreakerFeedback:
    """The breakers of all endpoints."""

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        self._ledger = ledger
        self.breakers = CircuitBreakers(
            settings.circuit_breaker, settings.housekeeping.breaker_idle_ms
        )
        self._unwritable: set[str] = set()

    def on_stored(self, endpoint: str, at_us: int) -> None:
        """A message was stored and no handler waits for it: that is all there is to succeed.

        While the mailbox's files cannot be written, there is more: see `on_file_written`.
        """
        if endpoint not in self._unwritable:
            self.record_transition(self.breakers.record_success(endpoint, at_us // 1000), at_us)

    def on_acked(self, message: Message, at_us: int) -> None:
        """A message was consumed."""
        self._on_consumed(message, at_us, ok=True)

    def on_failed(self, message: Message, at_us: int) -> None:
        """A handler raised."""
        self._on_consumed(message, at_us, ok=False)

    def on_file_written(self, endpoint: str, ok: bool) -> None:
        """A mailbox file could not be written, or for the first time since then it could."""
        at_us = self._ledger.now_us()
        if ok:
            self._unwritable.discard(endpoint)
            self.record_transition(self.breakers.record_success(endpoint, at_us // 1000), at_us)
        else:
            self._unwritable.add(endpoint)
            self.record_transition(self.breakers.record_failure(endpoint, at_us // 1000), at_us)

    def on_abandoned(self, message: Message) -> None:
        """A message left without an outcome."""
        if message.probe:
            message.probe = False
            self.breakers.release_probe(message.endpoint)

    def record_transition(self, transition: Transition | None, at_us: int) -> None:
        """Write a breaker's move into the journal."""
        if transition is None:
            return
        log.info(
            "breaker of %s: %s -> %s (%s)",
            transition.endpoint,
            transition.before,
            transition.after,
            transition.occasion,
        )
        self._ledger.record(
            BreakerMoved(
                at_us=at_us,
                endpoint=transition.endpoint,
                before=transition.before,
                after=transition.after,
                occasion=transition.occasion,
            )
        )

    def _on_consumed(self, message: Message, at_us: int, *, ok: bool) -> None:
        probe, message.probe = message.probe, False
        transition = self.breakers.record_outcome(
            message.endpoint, ok=ok, probe=probe, now_ms=at_us // 1000
        )
        self.record_transition(transition, at_us)
