"""Reports outcomes of deliveries to the circuit breakers, and journals their transitions.

Rule 1  Every event of a stored message but `leased` and `queued` ends its delivery, and with it
        its probe slot.
Rule 2  What counts against a message as a failed delivery is a failure of its endpoint.
Rule 3  Storing a message is an outcome only for a probe that has no consumer to wait for.
"""

import logging
from typing import assert_never

from waypost.policy.breakers import (
    CLOSED,
    CircuitBreakers,
    CircuitState,
    DeliveryOutcome,
    Occasion,
    Transition,
)
from waypost.policy.settings import Settings
from waypost.relay.errors import UnknownEndpoint
from waypost.relay.state.ledger import Ledger
from waypost.wire import events

log = logging.getLogger("waypost.relay")


class BreakerFeedback:
    """The circuit breakers of all endpoints."""

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        self._ledger = ledger
        self.breakers = CircuitBreakers(
            settings.circuit_breaker, settings.housekeeping.breaker_idle_ms
        )
        self._unwritable: dict[str, list[str]] = {}
        """Endpoints whose mailbox files cannot be written, with the probes that wait for theirs."""

    def on_stored(self, event: events.Accepted) -> None:
        """Record the success of a probe without a consumer: storing it is the delivery.

        While the mailbox's files cannot be written, it waits for its own: see `on_file_written`.
        """
        if not event.probe or event.deferred:
            return
        if event.endpoint in self._unwritable:
            self._unwritable[event.endpoint].append(event.id)
        else:
            self._settle(event.endpoint, event.id, DeliveryOutcome.SUCCESS, event.at_us)

    def deferred_probes(self) -> list[tuple[str, str]]:
        """Return endpoint and message id of every probe that waits for its consumer."""
        return [
            (endpoint, probe)
            for endpoint, probe in self.breakers.probes()
            if probe not in self._unwritable.get(endpoint, ())
        ]

    def on_event(self, event: events.MailboxEvent) -> None:
        """Record the end of a delivery, if the event is one."""
        outcome = outcome_of(event)
        if outcome is not None:
            self._settle(event.endpoint, event.id, outcome, event.at_us)

    def on_file_written(self, endpoint: str, ok: bool) -> None:
        """Record that a mailbox file could not be written, or could be again."""
        at_us = self._ledger.now_us()
        if ok:
            for probe in self._unwritable.pop(endpoint, None) or ("",):
                self._settle(endpoint, probe, DeliveryOutcome.SUCCESS, at_us)
        else:
            self._unwritable.setdefault(endpoint, [])
            self.record_transition(self.breakers.record_failure(endpoint, at_us // 1000), at_us)

    def reset(self, endpoint: str) -> CircuitState:
        """Close the breaker of an endpoint, because its operator says so; return its state before.

        It is journaled even if only failures are forgotten: a replay has to forget them, too.
        """
        breaker = self.breakers.get_states().get(endpoint)
        if breaker is None:
            if endpoint not in self._ledger.state.mailboxes:
                raise UnknownEndpoint(endpoint)
            return CLOSED
        self.breakers.reset(endpoint)
        reset = Transition(endpoint, breaker.state, CLOSED, Occasion.RESET)
        self.record_transition(reset, self._ledger.now_us())
        return breaker.state

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
            events.BreakerMoved(
                at_us=at_us,
                endpoint=transition.endpoint,
                before=transition.before,
                after=transition.after,
                occasion=transition.occasion,
            )
        )

    def _settle(self, endpoint: str, message_id: str, outcome: DeliveryOutcome, at_us: int) -> None:
        transition = self.breakers.settle(endpoint, message_id, outcome, at_us // 1000)
        self.record_transition(transition, at_us)


def outcome_of(event: events.MailboxEvent) -> DeliveryOutcome | None:
    """Return the outcome of a delivery that `event` ends; None if it ends none."""
    match event:
        case events.Leased() | events.Queued():
            return None
        case events.Acked():
            return DeliveryOutcome.SUCCESS
        case events.Returned() | events.Failed():
            return DeliveryOutcome.NO_VERDICT if event.uncounted else DeliveryOutcome.FAILURE
        case events.Expired() | events.Evicted() | events.Redriven() | events.Cancelled():
            return DeliveryOutcome.NO_VERDICT
        case _:
            assert_never(event)
