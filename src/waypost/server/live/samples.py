"""Samples of one second each, and the current status of a relay.

Rule 1  A sample is the difference of two counts that the relay keeps anyway: sampling costs the
        publish path nothing.
Rule 2  Percentiles are of the newest acknowledgements since the previous sample, at most
        `waits_in_memory_max` of them: values that occurred, not estimates.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from waypost.policy.breakers import CircuitState
from waypost.relay.inspection.findings import Facts, what_to_look_at
from waypost.relay.inspection.stats import MailboxCounts, Survey
from waypost.relay.relay import Relay
from waypost.wire.events import BreakerMoved
from waypost.wire.findings import OperatorFinding, SenderRejections
from waypost.wire.stats_bodies import NodeHealth

FULLEST_MAX = 6
REJECTED_SENDERS_MAX = 100
BREAKERS_MAX = 500

_REJECTED = "rejected."


class Sample(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Events counted over `seconds`, up to `at_us`, and the totals at its end.

    `wait_*_ms` are times from arrival to acknowledgement of `waits` messages, None without any.
    """

    at_us: int
    seconds: float
    accepted: int = 0
    leased: int = 0
    acked: int = 0
    failed: int = 0
    expired: int = 0
    rejected: dict[str, int] = {}
    waits: int = 0
    wait_p50_ms: float | None = None
    wait_p95_ms: float | None = None
    pending: int = 0
    scheduled: int = 0
    held: int = 0
    dead: int = 0
    bytes: int = 0
    inboxes: int = 0
    connected: int = 0
    stuck: int = 0
    pressure: float = 0.0


class RelayStatus(msgspec.Struct, kw_only=True):
    """Findings, problems, the fullest inboxes, and the cap of an inbox (None without one).

    `rejections` are by sender, of `rejected_senders` in the last minutes, the most first. `oldest`
    is the inbox with the oldest unacknowledged message, None without any. The relay warns at
    `pressure_warning_at` of `mailbox_max`.
    """

    at_us: int
    fullest: list[MailboxCounts]
    oldest: MailboxCounts | None
    findings: list[OperatorFinding]
    rejections: list[SenderRejections]
    rejected_senders: int
    node: NodeHealth
    problems: list[str]
    storage_full: bool
    mailbox_max: int | None
    pressure_warning_at: float


class BreakerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A circuit breaker that is not at rest. `opened_at` is ms since the epoch."""

    endpoint: str
    state: CircuitState
    consecutive_failures: int
    opened_at: int | None
    probes_in_flight: int
    half_open_successes: int


class BreakersStatus(msgspec.Struct, kw_only=True):
    """The breakers that are not at rest, of `total`, and the latest state changes, newest first.

    An open breaker is probed after `cooldown_ms`.
    """

    states: list[BreakerStatus]
    total: int
    moves: list[BreakerMoved]
    cooldown_ms: int


class EventCounts(Protocol):
    """The counts that a relay keeps while it works; see `Inspector`."""

    @property
    def counts(self) -> Mapping[str, int]: ...
    def take_wait_times_us(self) -> list[int]: ...


class IntervalCounter:
    """Counts the events between two calls of `take`."""

    def __init__(self, relay: EventCounts, at_us: int) -> None:
        self._relay = relay
        self._at_us = at_us
        self._before = Counter(relay.counts)
        relay.take_wait_times_us()  # those that recovery read back are from an earlier run

    def take(self, at_us: int) -> Sample:
        """Return the events since the previous call; the totals are left at 0."""
        now, before = Counter(self._relay.counts), self._before
        seconds = max(at_us - self._at_us, 1) / 1_000_000
        self._before, self._at_us = now, at_us
        waits = self._relay.take_wait_times_us()
        new = {kind: now[kind] - before[kind] for kind in now if now[kind] != before[kind]}
        return Sample(
            at_us=at_us,
            seconds=round(seconds, 3),
            accepted=new.get("accepted", 0),
            leased=new.get("leased", 0),
            acked=new.get("acked", 0),
            failed=new.get("failed", 0) + new.get("evicted", 0),
            expired=new.get("expired", 0),
            rejected={
                kind.removeprefix(_REJECTED): count
                for kind, count in new.items()
                if kind.startswith(_REJECTED)
            },
            waits=len(waits),
            wait_p50_ms=percentile_ms(waits, 50),
            wait_p95_ms=percentile_ms(waits, 95),
        )


def percentile_ms(waits_us: Sequence[int], percent: int) -> float | None:
    """Return the percentile of sorted times (µs), in ms: the smallest that covers `percent`."""
    if not waits_us:
        return None
    rank = -(-len(waits_us) * percent // 100)
    return waits_us[rank - 1] / 1000


def relay_status(
    relay: Relay, survey: Survey, stuck: Mapping[str, int], node: NodeHealth
) -> RelayStatus:
    """Return the current status of `relay`; `stuck` are agents, and since when (µs)."""
    at_us = relay.now_us()
    backpressure, inspector = relay.settings.backpressure, relay.inspect()
    rejections, journal = inspector.rejections(), inspector.journal()
    facts = Facts(
        now_us=at_us,
        inboxes=survey.fullest,
        warning_at=backpressure.pressure_warning_at,
        breakers={name: one.state for name, one in inspector.breakers().items()},
        stuck=stuck,
        rejections=rejections,
        disk=(node.disk_free_bytes, node.disk_total_bytes),
        full_because=journal.full_because if journal.full else "",
    )
    return RelayStatus(
        at_us=at_us,
        fullest=survey.fullest[:FULLEST_MAX],
        oldest=survey.oldest,
        findings=what_to_look_at(facts),
        rejections=rejections[:REJECTED_SENDERS_MAX],
        rejected_senders=len(rejections),
        node=node,
        problems=inspector.problems(),
        storage_full=journal.full,
        mailbox_max=backpressure.max_mailbox_size if backpressure.enabled else None,
        pressure_warning_at=backpressure.pressure_warning_at,
    )


def breakers_status(relay: Relay) -> BreakersStatus:
    """Return the circuit breakers, at most `BREAKERS_MAX`; those not closed come first."""
    inspector = relay.inspect()
    states = [
        BreakerStatus(
            endpoint=endpoint,
            state=one.state,
            consecutive_failures=one.consecutive_failures,
            opened_at=one.opened_at,
            probes_in_flight=one.probes_in_flight,
            half_open_successes=one.half_open_successes,
        )
        for endpoint, one in inspector.breakers().items()
    ]
    states.sort(key=lambda one: one.state is CircuitState.CLOSED)
    return BreakersStatus(
        states=states[:BREAKERS_MAX],
        total=len(states),
        moves=inspector.breaker_moves(),
        cooldown_ms=relay.settings.circuit_breaker.cooldown_ms,
    )
