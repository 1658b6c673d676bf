"""How a relay stands, besides numbers over time: problems, fullest inboxes, breakers."""

from collections.abc import Iterator

import msgspec

from waypost.policy.breakers import CircuitState
from waypost.relay.relay import Relay
from waypost.server.live.rows import Census, InboxRow, fullest
from waypost.wire.events import BreakerMoved

FULLEST = 6
BREAKERS_MAX = 500


class Standing(msgspec.Struct, kw_only=True):
    """`mailbox_max` messages fill an inbox, None if there is no cap; a relay warns at
    `pressure_warning_at` of it."""

    at_us: int
    fullest: list[InboxRow]
    problems: list[str]
    storage_full: bool
    mailbox_max: int | None
    pressure_warning_at: float


class BreakerNow(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker that is not at rest. `opened_at` is ms since the epoch."""

    endpoint: str
    state: CircuitState
    consecutive_failures: int
    opened_at: int | None
    probes_in_flight: int
    half_open_successes: int


class Breakers(msgspec.Struct, kw_only=True):
    """Those not at rest, and the newest moves of any, the newest first.

    One that opens tries again after `cooldown_ms`.
    """

    states: list[BreakerNow]
    moves: list[BreakerMoved]
    cooldown_ms: int


def standing_of(relay: Relay, census: Census, at_us: int) -> Standing:
    """How `relay` stands now."""
    backpressure = relay.settings.backpressure
    return Standing(
        at_us=at_us,
        fullest=fullest(census.rows, FULLEST),
        problems=relay.inspect().problems(),
        storage_full=relay.inspect().journal().full,
        mailbox_max=backpressure.max_mailbox_size if backpressure.enabled else None,
        pressure_warning_at=backpressure.pressure_warning_at,
    )


def breakers_of(relay: Relay) -> Breakers:
    """The breakers of `relay` now, at most `BREAKERS_MAX`: those that are not closed first."""
    states = sorted(_states(relay), key=lambda one: one.state is CircuitState.CLOSED)
    return Breakers(
        states=states[:BREAKERS_MAX],
        moves=relay.inspect().breaker_moves(),
        cooldown_ms=relay.settings.circuit_breaker.cooldown_ms,
    )


def _states(relay: Relay) -> Iterator[BreakerNow]:
    for endpoint, one in relay.inspect().breakers().items():
        yield BreakerNow(
            endpoint=endpoint,
            state=one.state,
            consecutive_failures=one.consecutive_failures,
            opened_at=one.opened_at,
            probes_in_flight=one.probes_in_flight,
            half_open_successes=one.half_open_successes,
        )
