"""The messaging guard's decisions: may this agent call that agent now?

Rule 1  The recipient's circuit is checked first; if it is open, the rate is not checked.
Rule 2  Only allowed calls count in their sender's window.
Rule 3  A probe slot taken by a call that the rate limit then rejects is released.
Rule 4  Agents are independent: failures of one recipient open no other circuit, and the calls of
        one sender fill no other window.
Rule 5  An open circuit closes by good probes or by hand, never by time: the sweep forgets closed
        circuits only. Open ones are few, because each needs failed calls, which are limited.

Circuits and windows are those of `breakers` and `rate_limits`. This module does not know the
time, the environment or the outcome of a call: all three are arguments. The caller's clock must
not go back.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import assert_never

import msgspec

from waypost.policy.breakers import (
    CircuitBreakerConfig,
    CircuitBreakers,
    CircuitState,
    Transition,
)
from waypost.policy.errors import InvalidSettings
from waypost.policy.rate_limits import RateWindows

SWEEP_INTERVAL_MS = 300_000
BREAKER_IDLE_MS = SWEEP_INTERVAL_MS
"""Failures are forgotten after at most this and one interval; so is a probe without an outcome."""

_VARIABLES = {
    "AGENT_CB_FAILURE_THRESHOLD": "failure_threshold",
    "AGENT_CB_RESET_TIMEOUT_MS": "reset_timeout_ms",
    "AGENT_CB_SUCCESS_THRESHOLD": "success_threshold",
    "AGENT_RATE_LIMIT_PER_MIN": "rate_limit_per_window",
}
_DIGITS_MAX = 18
"""A number with more digits is taken for a typing error."""


class MessagingGuardConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Opens after 5 consecutive failures, probes after 30 s, closes after 2 successes; 10 calls per
    sender in 60 s. A value below 1 raises `InvalidSettings`.
    """

    failure_threshold: int = 5
    reset_timeout_ms: int = 30_000
    success_threshold: int = 2
    rate_limit_per_window: int = 10
    rate_limit_window_ms: int = 60_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidSettings(f"{name} must be a whole number of 1 or more, not {value!r}")


class GuardRejectionReason(StrEnum):
    """The closed set of reasons for rejecting a call."""

    CIRCUIT_OPEN = "CIRCUIT_OPEN"
    RATE_LIMITED = "RATE_LIMITED"


class GuardResult(msgspec.Struct, frozen=True):
    """The decision; `reason` and `retry_after_ms` are set if the call is rejected."""

    allowed: bool
    reason: GuardRejectionReason | None = None
    retry_after_ms: int | None = None


class GuardLimit(msgspec.Struct, frozen=True):
    """A limit in words, and the field and the variable of the environment that change it."""

    text: str
    field: str
    variable: str


class Swept(msgspec.Struct, frozen=True):
    """The number of idle senders and closed circuits that were forgotten, and of probes without an
    outcome whose slots were released."""

    senders: int
    circuits: int
    probes: int = 0


_ALLOWED = GuardResult(True)


def load_messaging_guard_config(env: Mapping[str, str]) -> MessagingGuardConfig:
    """Return the configuration in `env`; missing and invalid values get the default."""
    asked = {field: _positive(env.get(name, "")) for name, field in _VARIABLES.items()}
    return MessagingGuardConfig(**{field: n for field, n in asked.items() if n is not None})


def invalid_guard_variables(env: Mapping[str, str]) -> list[str]:
    """Return a text for each variable in `env` with an invalid value; its default is used."""
    defaults = MessagingGuardConfig()
    return [
        f"{name}={env[name]!r:.40} is not a whole number of 1 or more:"
        f" {getattr(defaults, field)} is used"
        for name, field in _VARIABLES.items()
        if env.get(name, "").strip() and _positive(env[name]) is None
    ]


def limit_of(reason: GuardRejectionReason, config: MessagingGuardConfig) -> GuardLimit:
    """Return the limit of `config` that caused a rejection."""
    match reason:
        case GuardRejectionReason.RATE_LIMITED:
            calls, window_s = config.rate_limit_per_window, config.rate_limit_window_ms / 1000
            text = f"at most {_counted(calls, 'request')} of one agent in {window_s:g} s"
            return GuardLimit(text, "rate_limit_per_window", "AGENT_RATE_LIMIT_PER_MIN")
        case GuardRejectionReason.CIRCUIT_OPEN:
            failures = _counted(config.failure_threshold, "failure")
            reset_s = config.reset_timeout_ms / 1000
            text = f"its circuit opens after {failures} in a row, for {reset_s:g} s"
            return GuardLimit(text, "failure_threshold", "AGENT_CB_FAILURE_THRESHOLD")
        case _:
            assert_never(reason)


class GuardPolicy:
    """A circuit per recipient and a window per sender, under one configuration.

    The call that causes or notices a transition returns it.
    """

    def __init__(self, config: MessagingGuardConfig | None = None) -> None:
        self.config = config or MessagingGuardConfig()
        self._windows = RateWindows()
        self._circuits = CircuitBreakers(
            CircuitBreakerConfig(
                failure_threshold=self.config.failure_threshold,
                cooldown_ms=self.config.reset_timeout_ms,
                half_open_probe_count=1,
                success_to_close=self.config.success_threshold,
            )
        )

    def check(
        self, from_agent: str, to_agent: str, now_ms: int
    ) -> tuple[GuardResult, Transition | None]:
        """Return whether `from_agent` may call `to_agent`; an allowed call is counted."""
        circuit = self._circuits.check(to_agent, now_ms)
        if not circuit.allowed:
            # While a probe is in flight, report the wait that its failure would cause.
            wait_ms = circuit.retry_after_ms or self.config.reset_timeout_ms
            return GuardResult(False, GuardRejectionReason.CIRCUIT_OPEN, wait_ms), None
        limit, window_ms = self.config.rate_limit_per_window, self.config.rate_limit_window_ms
        if self._windows.count(from_agent, now_ms, window_ms) >= limit:
            if circuit.probe:
                self._circuits.release_probe(to_agent)
            wait_ms = self._windows.retry_after_ms(from_agent, now_ms, window_ms, limit)
            rejected = GuardResult(False, GuardRejectionReason.RATE_LIMITED, wait_ms)
            return rejected, circuit.transition
        self._windows.record(from_agent, now_ms)
        return _ALLOWED, circuit.transition

    def record_success(self, to_agent: str, now_ms: int) -> Transition | None:
        """Record a successful call to `to_agent`."""
        return self._circuits.record_success(to_agent, now_ms)

    def record_failure(self, to_agent: str, now_ms: int) -> Transition | None:
        """Record a failed call to `to_agent`."""
        return self._circuits.record_failure(to_agent, now_ms)

    def circuit_state(self, to_agent: str, now_ms: int) -> tuple[CircuitState, Transition | None]:
        """Return the state at `now_ms`; after the cooldown, this half-opens the circuit."""
        seen = self._circuits.check(to_agent, now_ms)
        if seen.probe:
            self._circuits.release_probe(to_agent)
        return seen.state, seen.transition

    def circuit_states(self, now_ms: int) -> tuple[dict[str, CircuitState], list[Transition]]:
        """Return the states at `now_ms` of all circuits that are not closed, by agent."""
        kept = self._circuits.get_states()
        seen = {
            agent: self.circuit_state(agent, now_ms)
            for agent, circuit in kept.items()
            if circuit.state is not CircuitState.CLOSED
        }
        states = {agent: state for agent, (state, _) in seen.items()}
        return states, [moved for _, moved in seen.values() if moved is not None]

    def calls_in_window(self, from_agent: str, now_ms: int) -> int:
        """Return how many calls of `from_agent` count at `now_ms`."""
        return self._windows.count(from_agent, now_ms, self.config.rate_limit_window_ms)

    def reset_circuit(self, to_agent: str) -> Transition | None:
        """Close the circuit of `to_agent`, and forget its failures."""
        return self._circuits.reset(to_agent)

    def reset_all(self) -> list[Transition]:
        """Close every circuit and empty every window."""
        self._windows.clear()
        resets = [self._circuits.reset(name) for name in self._circuits.get_states()]
        return [transition for transition in resets if transition is not None]

    def sweep(self, now_ms: int) -> Swept:
        """Forget senders with an empty window and closed idle circuits; release lost probes."""
        return Swept(
            senders=self._windows.sweep(now_ms, self.config.rate_limit_window_ms),
            circuits=self._circuits.forget_idle(now_ms, BREAKER_IDLE_MS),
            probes=self._release_lost_probes(now_ms),
        )

    def _release_lost_probes(self, now_ms: int) -> int:
        lost = [
            agent
            for agent, circuit in self._circuits.get_states().items()
            if circuit.probes_in_flight and now_ms - circuit.touched_at >= BREAKER_IDLE_MS
        ]
        for agent in lost:
            self._circuits.release_probe(agent)
        return len(lost)

    def tracked(self) -> tuple[int, int]:
        """Return the number of tracked senders and circuits."""
        return len(self._windows), len(self._circuits)


def _positive(text: str) -> int | None:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        return None
    return int(digits) or None


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
