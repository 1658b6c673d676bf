"""Circuit breakers, one per endpoint.

Rule 1  `TRANSITIONS` is the complete state machine; no other code changes a state.
Rule 2  At most `half_open_probe_count` probes are in flight. A slot belongs to a message: any
        outcome of that message frees it, even none (`settle`).
Rule 3  A failure while OPEN does not prolong it: the cooldown counts from the opening.
Rule 4  A breaker at rest (CLOSED, no failures) takes no memory.
Rule 5  Failures older than `idle_ms` are ignored at the next failure, swept or not: a replay need
        not know when the relay swept.
Rule 6  Half-open, only the outcomes of probes count.

This module does not know what a failure is. Its state does not survive a restart, on purpose: a
restart is often the repair.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from waypost.policy.bounds import number_max
from waypost.policy.errors import InvalidSettings
from waypost.policy.rate_limits import PositiveInt


class CircuitState(StrEnum):
    """CLOSED lets everything through, OPEN nothing, HALF_OPEN a few probes."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


CLOSED, OPEN, HALF_OPEN = CircuitState
"""Module-level aliases: attribute access on an Enum class is ten times slower, and this runs per
message."""


class Occasion(StrEnum):
    """The causes of transitions; their texts are journaled."""

    FAILURES_REACHED = "failure_threshold consecutive failures"
    COOLDOWN_ELAPSED = "cooldown_ms elapsed"
    PROBE_FAILED = "a probe failed"
    SUCCESSES_REACHED = "success_to_close consecutive successes"
    RESET = "reset by hand"
    IDLE = "untouched for long"


TRANSITIONS: dict[tuple[CircuitState, Occasion], CircuitState] = {
    (CLOSED, Occasion.FAILURES_REACHED): OPEN,
    (OPEN, Occasion.COOLDOWN_ELAPSED): HALF_OPEN,
    (HALF_OPEN, Occasion.PROBE_FAILED): OPEN,
    (HALF_OPEN, Occasion.SUCCESSES_REACHED): CLOSED,
    (OPEN, Occasion.RESET): CLOSED,
    (HALF_OPEN, Occasion.RESET): CLOSED,
    (OPEN, Occasion.IDLE): CLOSED,
    (HALF_OPEN, Occasion.IDLE): CLOSED,
}


class DeliveryOutcome(StrEnum):
    """The end of one delivery. `NO_VERDICT`: it says nothing about the endpoint."""

    SUCCESS = "success"
    FAILURE = "failure"
    NO_VERDICT = "no verdict"


HANDLERS, DELIVERIES = "handlers", "deliveries"
"""What a relay reports to its breakers. `DELIVERIES`: the outcome of every delivery. `HANDLERS`, as
relays did before: failures of handlers, acknowledgements, and every storing without a handler."""


class CircuitBreakerConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Opens after 5 failures in a row, probes after 30 s, closes after 2 good probes."""

    enabled: bool = True
    failure_threshold: PositiveInt = 5
    cooldown_ms: Annotated[int, msgspec.Meta(ge=1000)] = 30_000
    half_open_probe_count: PositiveInt = 1
    success_to_close: PositiveInt = 2


DEFAULT_CB_CONFIG = CircuitBreakerConfig()


class CircuitBreakerState(msgspec.Struct):
    """One breaker. `opened_at` and `touched_at` are ms; `opened_at` is None while CLOSED.

    `probes` are the ids of the messages that hold a slot; empty for a probe without a message.
    """

    state: CircuitState = CLOSED
    consecutive_failures: int = 0
    opened_at: int | None = None
    half_open_successes: int = 0
    touched_at: int = 0
    probes: list[str] = []

    @property
    def probes_in_flight(self) -> int:
        """The number of slots in use."""
        return len(self.probes)


class Transition(msgspec.Struct, frozen=True):
    """A change of a breaker's state."""

    endpoint: str
    before: CircuitState
    after: CircuitState
    occasion: Occasion


class CircuitBreakerResult(msgspec.Struct, frozen=True):
    """The result of a check; with `probe`, the caller holds a slot and must report its outcome."""

    allowed: bool
    state: CircuitState
    reason: str | None = None
    retry_after_ms: int = 0
    probe: bool = False
    transition: Transition | None = None


NEVER_IDLE_MS = number_max
_CLOSED = CircuitBreakerResult(True, CLOSED)


class CircuitBreakers:
    """The breakers of many endpoints under one configuration."""

    def __init__(
        self, config: CircuitBreakerConfig | None = None, idle_ms: int = NEVER_IDLE_MS
    ) -> None:
        self.config = config or DEFAULT_CB_CONFIG
        self.idle_ms = idle_ms
        self._breakers: dict[str, CircuitBreakerState] = {}

    def __len__(self) -> int:
        return len(self._breakers)

    def check(self, endpoint: str, now_ms: int, message_id: str = "") -> CircuitBreakerResult:
        """Return whether a delivery to `endpoint` is allowed; it may take a probe slot."""
        breaker = self._breakers.get(endpoint)
        if breaker is None or not self.config.enabled or breaker.state is CLOSED:
            return _CLOSED
        transition = None
        if breaker.state is OPEN:
            left = (breaker.opened_at or 0) + self.config.cooldown_ms - now_ms
            if left > 0:
                why = f"circuit open for endpoint {endpoint}"
                return CircuitBreakerResult(False, OPEN, why, left)
            transition = self._move(endpoint, breaker, Occasion.COOLDOWN_ELAPSED, now_ms)
        if len(breaker.probes) >= self.config.half_open_probe_count:
            why = f"circuit half-open for endpoint {endpoint}: waiting for its probe"
            return CircuitBreakerResult(False, HALF_OPEN, why)
        breaker.probes.append(message_id)
        breaker.touched_at = now_ms
        return CircuitBreakerResult(True, HALF_OPEN, probe=True, transition=transition)

    def settle(
        self, endpoint: str, message_id: str, outcome: DeliveryOutcome, now_ms: int
    ) -> Transition | None:
        """Record the end of a message's delivery; a slot that the message held is free again.

        A half-open breaker counts its probes only: other messages were stored before it opened.
        """
        breaker = self._breakers.get(endpoint)
        was_probe = breaker is not None and _release(breaker, message_id)
        if outcome is DeliveryOutcome.NO_VERDICT:
            return None
        if breaker is not None and breaker.state is HALF_OPEN and not was_probe:
            return None
        if outcome is DeliveryOutcome.SUCCESS:
            return self.record_success(endpoint, now_ms)
        return self.record_failure(endpoint, now_ms)

    def record_success(self, endpoint: str, now_ms: int) -> Transition | None:
        """Record a successful delivery to `endpoint`."""
        breaker = self._breakers.get(endpoint)
        if breaker is None:
            return None
        breaker.touched_at = now_ms
        if breaker.state is CLOSED:
            del self._breakers[endpoint]
        elif breaker.state is HALF_OPEN:
            _release(breaker, "")
            breaker.half_open_successes += 1
            if breaker.half_open_successes >= self.config.success_to_close:
                return self._move(endpoint, breaker, Occasion.SUCCESSES_REACHED, now_ms)
        return None

    def record_failure(self, endpoint: str, now_ms: int) -> Transition | None:
        """Record a failed delivery to `endpoint`."""
        if not self.config.enabled:
            return None
        breaker = self._breakers.setdefault(endpoint, CircuitBreakerState())
        if breaker.state is CLOSED and self._is_idle(breaker, now_ms, self.idle_ms):
            breaker.consecutive_failures = 0
        breaker.consecutive_failures += 1
        breaker.touched_at = now_ms
        if breaker.state is HALF_OPEN:
            return self._move(endpoint, breaker, Occasion.PROBE_FAILED, now_ms)
        reached = breaker.consecutive_failures >= self.config.failure_threshold
        if breaker.state is CLOSED and reached:
            return self._move(endpoint, breaker, Occasion.FAILURES_REACHED, now_ms)
        return None

    def release_probe(self, endpoint: str, message_id: str = "") -> None:
        """Release a probe slot whose delivery had no outcome."""
        breaker = self._breakers.get(endpoint)
        if breaker is not None:
            _release(breaker, message_id)

    def get_states(self) -> dict[str, CircuitBreakerState]:
        """Return a copy of every breaker that is not at rest, by endpoint."""
        return {
            name: msgspec.structs.replace(one, probes=list(one.probes))
            for name, one in self._breakers.items()
        }

    def probes(self) -> list[tuple[str, str]]:
        """Return endpoint and message id of every probe in flight."""
        return [(name, probe) for name, one in self._breakers.items() for probe in one.probes]

    def state_of(self, endpoint: str) -> CircuitState:
        """Return the state of one breaker without changing it; CLOSED if unknown."""
        breaker = self._breakers.get(endpoint)
        return CLOSED if breaker is None else breaker.state

    def reset(self, endpoint: str) -> Transition | None:
        """Close a breaker and forget its failures."""
        breaker = self._breakers.get(endpoint)
        if breaker is None:
            return None
        if breaker.state is CLOSED:
            del self._breakers[endpoint]
            return None
        return self._move(endpoint, breaker, Occasion.RESET, breaker.touched_at)

    def update_config(
        self,
        config: CircuitBreakerConfig | Mapping[str, object] | None = None,
        idle_ms: int | None = None,
        **changes: object,
    ) -> None:
        """Change the configuration from now on; states do not change.

        A `CircuitBreakerConfig` replaces the whole of it. A mapping or keywords, by field name,
        change only what they name. Raises `InvalidSettings`, and then changes nothing.
        """
        if isinstance(config, CircuitBreakerConfig):
            self.config = _changed(config, changes)
        else:
            self.config = _changed(self.config, {**(config or {}), **changes})
        self.idle_ms = self.idle_ms if idle_ms is None else idle_ms

    def sweep(self, now_ms: int, idle_ms: int) -> list[Transition]:
        """Forget breakers that are idle for `idle_ms` and past their cooldown.

        Return the transitions of those that were not closed.
        """
        self.forget_idle(now_ms, idle_ms)
        idle = [
            (endpoint, breaker)
            for endpoint, breaker in self._breakers.items()
            if self._is_idle(breaker, now_ms, idle_ms)
        ]
        return [self._move(endpoint, breaker, Occasion.IDLE, now_ms) for endpoint, breaker in idle]

    def forget_idle(self, now_ms: int, idle_ms: int) -> int:
        """Forget closed breakers that are idle for `idle_ms`; return how many."""
        idle = [
            endpoint
            for endpoint, breaker in self._breakers.items()
            if breaker.state is CLOSED and self._is_idle(breaker, now_ms, idle_ms)
        ]
        for endpoint in idle:
            del self._breakers[endpoint]
        return len(idle)

    def _is_idle(self, breaker: CircuitBreakerState, now_ms: int, idle_ms: int) -> bool:
        return now_ms - breaker.touched_at >= max(idle_ms, self.config.cooldown_ms)

    def _move(
        self, endpoint: str, breaker: CircuitBreakerState, occasion: Occasion, now_ms: int
    ) -> Transition:
        before = breaker.state
        after = TRANSITIONS[before, occasion]
        breaker.state = after
        breaker.half_open_successes = 0
        breaker.probes.clear()
        breaker.touched_at = now_ms
        if after is OPEN:
            breaker.opened_at = now_ms
        elif after is CLOSED:
            del self._breakers[endpoint]
        return Transition(endpoint, before, after, occasion)


def _changed(config: CircuitBreakerConfig, changes: Mapping[str, Any]) -> CircuitBreakerConfig:
    """Return `config` with other values of some fields, all of them checked."""
    if not changes:
        return config
    try:
        changed = msgspec.structs.replace(config, **changes)
        return msgspec.convert(msgspec.to_builtins(changed), CircuitBreakerConfig)
    except (TypeError, msgspec.ValidationError) as problem:
        raise InvalidSettings(f"invalid settings of circuit breakers: {problem}") from None


def _release(breaker: CircuitBreakerState, message_id: str) -> bool:
    """Free the slot of a message; return whether it held one."""
    if message_id not in breaker.probes:
        return False
    breaker.probes.remove(message_id)
    return True
