"""What a report knows: plain values, a bounded number of them.

Times are milliseconds since the epoch and end in `_ms`, as lengths of time do. A list of the
largest comes with `more`, which says how many it leaves out.
"""

import msgspec

from waypost.pipeline.reports.incidents import Breakers, Connections, DeadLetters, Oddities


class Period(msgspec.Struct, frozen=True):
    """From `first_ms` on, where a step begins, and before `last_ms`, in steps of `step_ms`."""

    first_ms: int
    last_ms: int
    step_ms: int
    coarse_step_ms: int
    """For charts that show many inboxes below each other."""
    known_from_ms: int = 0
    """The first instant that anything is known of, some time after the first step began."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What the report is about."""

    lake_version: int = 0
    days: int = 0
    relays: list[str] = []
    relays_more: int = 0
    senders: int = 0
    inboxes: int = 0


class TrafficStep(msgspec.Struct, frozen=True):
    """What arrived and what was done in one step."""

    at_ms: int
    publishes: int
    stored: int
    unclaimed: int
    rejected: int
    acked: int
    failed: int
    bytes: int


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals over time. `total` adds up all steps."""

    steps: list[TrafficStep] = []
    total: TrafficStep = TrafficStep(0, 0, 0, 0, 0, 0, 0, 0)
    busiest_minute_ms: int = 0
    busiest_publishes: int = 0

    @property
    def arrivals(self) -> int:
        """Whatever arrived: stored, refused, or for nobody."""
        return self.total.stored + self.total.unclaimed + self.total.rejected


class ReasonTotal(msgspec.Struct, frozen=True):
    """Refusals for one reason. `example`: the newest detail, in the relay's words."""

    reason: str
    rejections: int
    senders: int
    inboxes: int
    example: str


class ReasonStep(msgspec.Struct, frozen=True):
    """Refusals for one reason in one step."""

    at_ms: int
    reason: str
    rejections: int


class Rejections(msgspec.Struct, frozen=True, kw_only=True):
    """Refusals by reason, most frequent first."""

    reasons: list[ReasonTotal] = []
    more: int = 0
    steps: list[ReasonStep] = []


class Percentiles(msgspec.Struct, frozen=True):
    """How long messages waited to be handed out, and until they were done; None: none were."""

    messages: int
    wait_p50_ms: float | None
    wait_p95_ms: float | None
    wait_p99_ms: float | None
    total_p50_ms: float | None
    total_p95_ms: float | None
    total_p99_ms: float | None


class LatencyStep(msgspec.Struct, frozen=True):
    """Messages that arrived in one step."""

    at_ms: int
    wait: Percentiles


class LatencyInbox(msgspec.Struct, frozen=True):
    """One inbox. `waited_ms` adds up all waits of all its messages."""

    relay: str
    endpoint: str
    waited_ms: float
    wait: Percentiles


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long messages took; inboxes where most time was spent waiting first."""

    overall: Percentiles = Percentiles(0, None, None, None, None, None, None)
    steps: list[LatencyStep] = []
    step_ms: int = 0
    """As long as the period's, or longer: of a handful of messages, percentiles only jump."""
    inboxes: list[LatencyInbox] = []
    more: int = 0
    waited_ms: float = 0.0


class PressureInbox(msgspec.Struct, frozen=True):
    """How full one inbox was at its fullest. `minutes_warned`: minutes at the warning or above."""

    relay: str
    endpoint: str
    peak: float
    peak_ms: int
    depth_peak: int
    depth_max: int
    minutes_warned: int


class PressureStep(msgspec.Struct, frozen=True):
    """The highest pressure of an inbox (its place in the list) in one coarse step."""

    inbox: int
    at_ms: int
    pressure: float


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """The fullest inboxes. `warned`: how many of all reached the warning."""

    warning_at: float
    inboxes: list[PressureInbox] = []
    steps: list[PressureStep] = []
    more: int = 0
    warned: int = 0


class TierTotal(msgspec.Struct, frozen=True):
    """Arrivals at inboxes from senders of one tier."""

    tier: int
    arrivals: int
    rejected: int


class InboxSender(msgspec.Struct, frozen=True):
    """One sender at one inbox; `tier` as of its last arrival, 0 if that is not known."""

    sender: str
    arrivals: int
    rejected: int
    tier: int


class BusyInbox(msgspec.Struct, frozen=True):
    """An inbox and who wrote to it most; `more` senders wrote the rest."""

    relay: str
    endpoint: str
    arrivals: int
    senders: list[InboxSender]
    more: int


class SenderTotal(msgspec.Struct, frozen=True):
    """What one sender did in the whole period."""

    relay: str
    sender: str
    publishes: int
    stored: int
    rejected: int
    answers: int
    bytes: int
    busiest_minute: int


class Senders(msgspec.Struct, frozen=True, kw_only=True):
    """Who wrote most, and to whom."""

    senders: list[SenderTotal] = []
    more: int = 0
    inboxes: list[BusyInbox] = []
    inboxes_more: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a report says. Without a period, the lake has no traffic to tell of."""

    scope: Scope
    period: Period | None = None
    traffic: Traffic
    rejections: Rejections
    latency: Latency
    pressure: Pressure
    tiers: list[TierTotal]
    senders: Senders
    breakers: Breakers
    dead_letters: DeadLetters
    oddities: Oddities
    connections: Connections
