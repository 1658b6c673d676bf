"""HTTP bodies about circuit breakers: their list, and the reset of one by the operator."""

import msgspec

from waypost.policy.breakers import CircuitBreakerState, CircuitState


class BreakerInfo(msgspec.Struct, kw_only=True):
    """A circuit breaker. `opened_at` and `touched_at` are ms since the epoch, or None.

    A data directory shows only what its journal holds: the other fields are None then.
    """

    state: CircuitState
    opened_at: int | None = None
    consecutive_failures: int | None = None
    half_open_successes: int | None = None
    probes_in_flight: int | None = None
    touched_at: int | None = None


class BreakerList(msgspec.Struct, kw_only=True):
    """The circuit breakers that are not at rest, by endpoint; the rest are closed."""

    breakers: dict[str, BreakerInfo]


class BreakerReset(msgspec.Struct, kw_only=True):
    """A breaker that is closed now, and its state before."""

    endpoint: str
    before: CircuitState


def describe_breaker(breaker: CircuitBreakerState) -> BreakerInfo:
    """Return a breaker without the ids of its probes."""
    return BreakerInfo(
        state=breaker.state,
        opened_at=breaker.opened_at,
        consecutive_failures=breaker.consecutive_failures,
        half_open_successes=breaker.half_open_successes,
        probes_in_flight=breaker.probes_in_flight,
        touched_at=breaker.touched_at,
    )
