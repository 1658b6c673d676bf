"""The data of a report: plain values, bounded in number.

Times are milliseconds since the epoch and end in `_ms`, as durations do. A list of the largest
items comes with `more`, the number of omitted ones. Some fields keep an older name in JSON, which
`waypost pipeline report --json` prints.
"""

import msgspec


class Period(msgspec.Struct, frozen=True):
    """A time span that begins at `first_ms`, at the start of a step, and ends before `last_ms`."""

    first_ms: int
    last_ms: int
    step_ms: int
    coarse_step_ms: int
    """Step of charts with a row for each inbox."""
    known_from_ms: int = 0
    """Time of the first event, at or after the start of the first step."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What the report covers."""

    lake_version: int = 0
    days: int = 0
    relays: list[str] = []
    relays_more: int = 0
    senders: int = 0
    inboxes: int = 0


class TrafficStep(msgspec.Struct, frozen=True):
    """Arrivals and outcomes in one step."""

    at_ms: int
    publishes: int
    stored: int
    unclaimed: int
    rejected: int
    acked: int
    failed: int
    bytes: int


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals over time. `total` is the sum of all steps."""

    steps: list[TrafficStep] = []
    total: TrafficStep = TrafficStep(0, 0, 0, 0, 0, 0, 0, 0)
    busiest_minute_ms: int = 0
    busiest_publishes: int = 0

    @property
    def arrivals(self) -> int:
        """Return all arrivals: stored, rejected, or without recipient."""
        return self.total.stored + self.total.unclaimed + self.total.rejected


class ReasonTotal(msgspec.Struct, frozen=True):
    """Rejections for one reason. `example`: the newest detail text of the relay."""

    reason: str
    rejections: int
    senders: int
    inboxes: int
    example: str


class ReasonStep(msgspec.Struct, frozen=True):
    """Rejections for one reason in one step."""

    at_ms: int
    reason: str
    rejections: int


class Rejections(msgspec.Struct, frozen=True, kw_only=True):
    """Rejections by reason, most frequent first."""

    reasons: list[ReasonTotal] = []
    more: int = 0
    steps: list[ReasonStep] = []


class Percentiles(msgspec.Struct, frozen=True):
    """Times from arrival to first delivery (wait) and to ack (total); None without messages."""

    messages: int
    wait_p50_ms: float | None
    wait_p95_ms: float | None
    wait_p99_ms: float | None
    total_p50_ms: float | None
    total_p95_ms: float | None
    total_p99_ms: float | None


class LatencyStep(msgspec.Struct, frozen=True):
    """Waiting times of the messages that arrived in one step."""

    at_ms: int
    wait: Percentiles


class LatencyInbox(msgspec.Struct, frozen=True):
    """Waiting times of one inbox. `waited_ms` is the sum over its messages."""

    relay: str
    endpoint: str
    waited_ms: float
    wait: Percentiles


class UnackedInbox(msgspec.Struct, frozen=True):
    """The messages of one inbox that are not acknowledged: `leased` of them were delivered.

    The oldest arrived at `oldest_ms`.
    """

    relay: str
    endpoint: str
    messages: int
    leased: int
    oldest_ms: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting times over time and by inbox, largest sum first.

    `unacked` are inboxes with unacknowledged messages at the end, the oldest first.
    """

    overall: Percentiles = Percentiles(0, None, None, None, None, None, None)
    steps: list[LatencyStep] = []
    step_ms: int = 0
    """The period's step or longer: percentiles of few messages are noise."""
    inboxes: list[LatencyInbox] = []
    more: int = 0
    waited_ms: float = 0.0
    unacked: list[UnackedInbox] = []
    unacked_more: int = 0


class PressureInbox(msgspec.Struct, frozen=True):
    """The peak of one inbox. `minutes_warned`: minutes at or above the warning level."""

    relay: str
    endpoint: str
    peak: float
    peak_ms: int
    depth_peak: int
    depth_max: int
    minutes_warned: int


class PressureStep(msgspec.Struct, frozen=True):
    """The highest pressure of an inbox (its index in the list) in one coarse step."""

    inbox: int
    at_ms: int
    pressure: float


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """The fullest inboxes. `warned`: number of inboxes that reached the warning level."""

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
    """One sender at one inbox; `tier` as of its last arrival, 0 if unknown."""

    sender: str
    arrivals: int
    rejected: int
    tier: int


class BusyInbox(msgspec.Struct, frozen=True):
    """An inbox and its most frequent senders; `more` others sent the rest."""

    relay: str
    endpoint: str
    arrivals: int
    senders: list[InboxSender]
    more: int


class SenderTotal(msgspec.Struct, frozen=True):
    """Totals of one sender in the period."""

    relay: str
    sender: str
    publishes: int
    stored: int
    rejected: int
    answers: int
    bytes: int
    busiest_minute: int


class SenderSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The most active senders, and the busiest inboxes."""

    senders: list[SenderTotal] = []
    more: int = 0
    inboxes: list[BusyInbox] = []
    inboxes_more: int = 0


class BreakerSpan(msgspec.Struct, frozen=True):
    """A span in which a breaker was `state`, OPEN or HALF_OPEN; without `to_ms` it lasts."""

    from_ms: int
    to_ms: int | None
    state: str


class Breaker(msgspec.Struct, frozen=True):
    """The breaker of one endpoint, with its longest spans."""

    relay: str
    endpoint: str
    opened: int
    open_ms: float
    last_state: str
    spans: list[BreakerSpan]
    spans_more: int


class BreakerSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Breakers that opened, longest open first. `opened`: total number of openings."""

    breakers: list[Breaker] = []
    more: int = 0
    opened: int = 0


class DeadReason(msgspec.Struct, frozen=True):
    """Dead letters with one reason text, shortened if long."""

    reason: str
    messages: int = msgspec.field(name="letters")
    waiting: int
    redriven: int
    purged: int
    inboxes: int
    first_ms: int
    last_ms: int


class DeadInbox(msgspec.Struct, frozen=True):
    """Dead-letter counts of one inbox."""

    relay: str
    endpoint: str
    messages: int = msgspec.field(name="letters")
    waiting: int


class DeadLetterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of dead letters, and the largest groups by reason and inbox."""

    messages: int = msgspec.field(default=0, name="letters")
    waiting: int = 0
    redriven: int = 0
    purged: int = 0
    reasons: list[DeadReason] = []
    reasons_more: int = 0
    inboxes: list[DeadInbox] = []
    inboxes_more: int = 0


class Loop(msgspec.Struct, frozen=True):
    """Messages that returned to an earlier mailbox, along one chain of endpoints."""

    relay: str
    endpoint: str
    chain: list[str]
    times: int
    senders: int
    first_ms: int
    last_ms: int


class Anomaly(msgspec.Struct, frozen=True):
    """A conspicuous sender on its worst day; `days`: number of such days."""

    relay: str
    sender: str
    kind: str
    endpoint: str | None
    why: str
    days: int
    worst_day_ms: int


class AnomalySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Loops and conspicuous senders."""

    loops: list[Loop] = []
    loops_more: int = 0
    anomalies: list[Anomaly] = []
    anomalies_more: int = 0


class ConnectionStep(msgspec.Struct, frozen=True):
    """New connections in one step."""

    at_ms: int
    connected: int


class AgentConnections(msgspec.Struct, frozen=True):
    """The connections of one agent. `connected_ms`: total duration of those that ended."""

    relay: str
    subject: str
    connections: int
    connected_ms: float
    open: int = msgspec.field(name="still")


class ConnectionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """WebSocket sessions, most frequent agents first. `median_ms`: duration of those that ended."""

    connections: int = 0
    open: int = msgspec.field(default=0, name="still")
    median_ms: float | None = None
    agents: list[AgentConnections] = []
    more: int = 0
    steps: list[ConnectionStep] = []


class ReportData(msgspec.Struct, frozen=True, kw_only=True):
    """All data of a report. Without a period, the lake has no traffic."""

    scope: Scope
    period: Period | None = None
    traffic: Traffic
    rejections: Rejections
    latency: Latency
    pressure: Pressure
    tiers: list[TierTotal]
    senders: SenderSummary
    breakers: BreakerSummary
    dead_letters: DeadLetterSummary
    anomalies: AnomalySummary = msgspec.field(name="oddities")
    connections: ConnectionSummary
