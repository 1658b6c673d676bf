"""The other half of the facts: what happened to breakers, dead letters, loops and connections."""

import msgspec


class BreakerSpan(msgspec.Struct, frozen=True):
    """A breaker was `state` (OPEN or HALF_OPEN); still is, if `to_ms` is None."""

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


class Breakers(msgspec.Struct, frozen=True, kw_only=True):
    """Breakers that opened, longest open first. `opened`: how often, all together."""

    breakers: list[Breaker] = []
    more: int = 0
    opened: int = 0


class DeadReason(msgspec.Struct, frozen=True):
    """Dead letters with one reason text, cut if it is long."""

    reason: str
    letters: int
    waiting: int
    redriven: int
    purged: int
    inboxes: int
    first_ms: int
    last_ms: int


class DeadInbox(msgspec.Struct, frozen=True):
    """Dead letters of one inbox."""

    relay: str
    endpoint: str
    letters: int
    waiting: int


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that could not be delivered and were kept."""

    letters: int = 0
    waiting: int = 0
    redriven: int = 0
    purged: int = 0
    reasons: list[DeadReason] = []
    reasons_more: int = 0
    inboxes: list[DeadInbox] = []
    inboxes_more: int = 0


class Loop(msgspec.Struct, frozen=True):
    """Messages that came back to where they had been, along one chain of endpoints."""

    relay: str
    endpoint: str
    chain: list[str]
    times: int
    senders: int
    first_ms: int
    last_ms: int


class Anomaly(msgspec.Struct, frozen=True):
    """A sender that stood out, on its worst day; `days` on which it did."""

    relay: str
    sender: str
    kind: str
    endpoint: str | None
    why: str
    days: int
    worst_day_ms: int


class Oddities(msgspec.Struct, frozen=True, kw_only=True):
    """Loops and senders that stood out."""

    loops: list[Loop] = []
    loops_more: int = 0
    anomalies: list[Anomaly] = []
    anomalies_more: int = 0


class ConnectionStep(msgspec.Struct, frozen=True):
    """How many agents connected in one step."""

    at_ms: int
    connected: int


class ConnectedAgent(msgspec.Struct, frozen=True):
    """The connections of one agent. `connected_ms`: all that have ended, together."""

    relay: str
    subject: str
    connections: int
    connected_ms: float
    still: int


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """WebSocket sessions, most frequent agents first. `median_ms`: of those that ended."""

    connections: int = 0
    still: int = 0
    median_ms: float | None = None
    agents: list[ConnectedAgent] = []
    more: int = 0
    steps: list[ConnectionStep] = []
