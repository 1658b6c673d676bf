"""Reports outcomes of deliveries to the circuit breakers, and journals their transitions."""

import logging

from waypost.policy.breakers import CircuitBreakers, Transition
from waypost.policy.settings import Settings
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Message
from waypost.wire.events import BreakerMoved

log = logging.getLogger("waypost.relay")


class BreakerFeedback:
    """The circuit breakers of all endpoints."""

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        self._ledger = ledger
        self.breakers = CircuitBreakers(
            settings.circuit_breaker, settings.housekeeping.breaker_idle_ms
        )
        self._unwritable: set[str] = set()

    def on_stored(self, endpoint: str, at_us: int) -> None:
        """Record a success: without a subscribed handler, storing the message is the delivery.

        While the mailbox's files cannot be written, their outcome counts: see `on_file_written`.
        """
        if endpoint not in self._unwritable:
            self.record_transition(self.breakers.record_success(endpoint, at_us // 1000), at_us)

    def on_acked(self, message: Message, at_us: int) -> None:
        """Record that a message was consumed."""
        self._on_consumed(message, at_us, ok=True)

    def on_failed(self, message: Message, at_us: int) -> None:
        """Record that a handler failed."""
        self._on_consumed(message, at_us, ok=False)

    def on_file_written(self, endpoint: str, ok: bool) -> None:
        """Record that a mailbox file could not be written, or could be again."""
        at_us = self._ledger.now_us()
        if ok:
            self._unwritable.discard(endpoint)
            self.record_transition(self.breakers.record_success(endpoint, at_us // 1000), at_us)
        else:
            self._unwritable.add(endpoint)
            self.record_transition(self.breakers.record_failure(endpoint, at_us // 1000), at_us)

    def on_abandoned(self, message: Message) -> None:
        """Release the probe slot of a message that was removed without an outcome."""
        if message.probe:
            message.probe = False
            self.breakers.release_probe(message.endpoint)

    def record_transition(self, transition: Transition | None, at_us: int) -> None:
        """Journal a transition, if there was one."""
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
