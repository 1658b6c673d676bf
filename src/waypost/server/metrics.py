"""Metrics of a served relay for Prometheus.

Rule 1  No label holds a name chosen by an agent: the number of series does not depend on the
        agents. Figures of one mailbox or sender are in `/v1/stats`.
Rule 2  A scrape counts nothing twice: the relay's own counts are read when Prometheus asks, and
        mailboxes are counted together with those of the live statistics.

Counters start at zero with the process.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from waypost.policy.breakers import TRANSITIONS, CircuitState
from waypost.policy.reasons import Reason
from waypost.relay.inspection.inspector import Inspector
from waypost.relay.inspection.stats import JournalStatus, Totals
from waypost.relay.relay import Relay

CONTENT_TYPE = CONTENT_TYPE_LATEST

_EVENTS = {
    "accepted": ("waypost_messages_accepted", "Messages stored, once per mailbox."),
    "leased": ("waypost_deliveries", "Messages delivered to consumers and handlers."),
    "extended": ("waypost_lease_extensions", "Leases that were extended."),
    "acked": ("waypost_acknowledgements", "Messages acknowledged."),
    "returned": ("waypost_returns", "Deliveries not acknowledged: the message is pending again."),
    "failed": ("waypost_failures", "Messages that became dead letters."),
    "expired": ("waypost_expirations", "Messages that expired."),
    "evicted": ("waypost_evictions", "Messages evicted from full mailboxes."),
    "redriven": ("waypost_redrives", "Dead letters returned to their mailboxes."),
    "purged": ("waypost_purges", "Dead letters deleted."),
}
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 60.0)


class Connected(msgspec.Struct, frozen=True):
    """The number of connected agents, how many are stuck, and their signals by outcome.

    `notices` are those to the webhooks of agents that are not connected, by outcome.
    """

    agents: int
    stuck: int
    signals: Mapping[str, int]
    notices: Mapping[str, int]


class HttpMetrics:
    """Counts HTTP requests; `render` adds the metrics of the relay and its connections."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "waypost_http_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            "waypost_http_request_seconds",
            "Time from the request's header to its response, including long polling.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self._registry,
        )

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is the path template."""
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(method, route).observe(seconds)

    def render(self, relay: Relay, totals: Totals, connected: Connected) -> bytes:
        """Return all metrics in the text format of Prometheus; `totals` are of all mailboxes."""
        registry = CollectorRegistry()
        registry.register(_RelayCollector(relay, totals, connected))
        return generate_latest(registry) + generate_latest(self._registry)


class _RelayCollector:
    """Reads the metrics of a relay at each scrape."""

    def __init__(self, relay: Relay, totals: Totals, connected: Connected) -> None:
        self._relay = relay
        self._totals = totals
        self._connected = connected

    def describe(self) -> list[Metric]:
        """Return nothing: the registry is created for one scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        inspector = self._relay.inspect()
        counts = inspector.counts
        for kind, (name, text) in _EVENTS.items():
            yield CounterMetricFamily(name, text, value=counts[kind])
        yield _by_reason(counts.__getitem__)
        yield CounterMetricFamily(
            "waypost_agent_rate_limit_rejections",
            "Publishes rejected by the rate limit of their sender.",
            value=counts[f"rejected.{Reason.RATE_LIMITED}"],
        )
        yield _breaker_moves(counts.__getitem__)
        yield from _holdings(inspector, self._totals)
        yield _oldest(self._totals, self._relay.now_us())
        yield from _journal(inspector.journal())
        yield GaugeMetricFamily(
            "waypost_connections",
            "Agents connected by WebSocket.",
            value=self._connected.agents,
        )
        yield GaugeMetricFamily(
            "waypost_stuck_connections",
            "Connected agents that acknowledge nothing, whose messages have been returned.",
            value=self._connected.stuck,
        )
        signals, notices = self._connected.signals, self._connected.notices
        yield _by_outcome("waypost_signals", "Signals of agents, by outcome.", signals)
        text = "Notices posted to webhooks, by outcome."
        yield _by_outcome("waypost_webhook_notices", text, notices)


def _by_outcome(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=["outcome"])
    for outcome, count in counts.items():
        family.add_metric([outcome], count)
    return family


def _by_reason(count: Callable[[str], int]) -> Metric:
    family = CounterMetricFamily(
        "waypost_rejections", "Rejected deliveries and publishes, by reason.", labels=["reason"]
    )
    for reason in Reason:
        if reason is not Reason.STORAGE_FULL:  # a full disk records no event to count
            family.add_metric([reason], count(f"rejected.{reason}"))
    return family


def _breaker_moves(count: Callable[[str], int]) -> Metric:
    family = CounterMetricFamily(
        "waypost_circuit_breaker_transitions",
        "State changes of circuit breakers.",
        labels=["from", "to"],
    )
    moves = {(before, after) for (before, _), after in TRANSITIONS.items()}
    for before, after in sorted(moves):
        family.add_metric([before, after], count(f"breaker.{before}.{after}"))
    return family


def _holdings(inspector: Inspector, totals: Totals) -> Iterator[Metric]:
    messages = GaugeMetricFamily("waypost_messages", "Messages stored now.", labels=["state"])
    messages.add_metric(["pending"], totals.pending)
    messages.add_metric(["scheduled"], totals.scheduled)
    messages.add_metric(["leased"], totals.leased)
    messages.add_metric(["dead"], totals.dead)
    yield messages
    yield GaugeMetricFamily("waypost_mailbox_bytes", "Bytes in all mailboxes.", value=totals.bytes)
    yield GaugeMetricFamily(
        "waypost_mailbox_depth_max", "Messages in the fullest mailbox.", value=totals.deepest
    )
    yield GaugeMetricFamily(
        "waypost_endpoints", "Registered endpoints.", value=inspector.endpoint_count()
    )
    yield GaugeMetricFamily(
        "waypost_senders_in_window", "Senders with a rate window.", value=inspector.senders_tracked
    )
    breakers = GaugeMetricFamily(
        "waypost_circuit_breakers", "Circuit breakers that are not closed.", labels=["state"]
    )
    states = [one.state for one in inspector.breakers().values()]
    for which in (CircuitState.OPEN, CircuitState.HALF_OPEN):
        breakers.add_metric([which], states.count(which))
    yield breakers


def _oldest(totals: Totals, now_us: int) -> Metric:
    age_us = 0 if totals.oldest_us is None else max(0, now_us - totals.oldest_us)
    return GaugeMetricFamily(
        "waypost_oldest_unacknowledged_seconds",
        "Age of the oldest message that is not acknowledged, over all mailboxes.",
        value=age_us / 1_000_000,
    )


def _journal(journal: JournalStatus) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "waypost_journal_commits", "Commits to the journal.", value=journal.commits
    )
    yield CounterMetricFamily(
        "waypost_journal_events", "Number of the last event in the journal.", value=journal.seq
    )
    yield GaugeMetricFamily(
        "waypost_storage_full", "1 while the disk is full.", value=float(journal.full)
    )
    yield GaugeMetricFamily(
        "waypost_journal_failed",
        "1 after the journal failed permanently; restart the relay.",
        value=float(bool(journal.failure)),
    )
