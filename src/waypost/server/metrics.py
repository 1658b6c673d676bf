"""Numbers of a served relay for Prometheus.

Rule 1  No label holds a name that an agent chose: how many series there are does not depend on
        who is there. What one mailbox or sender does is in `/v1/stats`.
Rule 2  Reading costs one pass over the mailboxes, and nothing is counted twice: what the relay
        counts anyway is taken from it when somebody asks.

Counters begin at zero when the process starts.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from waypost.policy.breakers import TRANSITIONS, CircuitState
from waypost.policy.reasons import Reason
from waypost.relay.inspection.inspector import Inspector
from waypost.relay.inspection.stats import JournalStatus

if TYPE_CHECKING:
    from waypost.server.context import ServerContext

CONTENT_TYPE = CONTENT_TYPE_LATEST

_EVENTS = {
    "accepted": ("waypost_messages_accepted", "Messages stored, once for each mailbox."),
    "leased": ("waypost_deliveries", "Messages handed to consumers and handlers."),
    "acked": ("waypost_acknowledgements", "Messages that were done."),
    "returned": ("waypost_returns", "Deliveries without an outcome: the message waits again."),
    "failed": ("waypost_failures", "Messages that became dead letters."),
    "expired": ("waypost_expirations", "Messages whose time to live was over."),
    "evicted": ("waypost_evictions", "Messages that made room for others."),
    "redriven": ("waypost_redrives", "Dead letters put back by hand."),
    "purged": ("waypost_purges", "Dead letters thrown away."),
}
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 60.0)


class Meters:
    """What is counted about requests; `render` adds what the relay and its connections know."""

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
            "Time from the request's header to its answer; waiting for mail counts.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self._registry,
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is the path with its parameters' names."""
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(method, route).observe(seconds)

    def render(self, services: "ServerContext") -> bytes:
        """Everything, in the text format of Prometheus."""
        relay = CollectorRegistry()
        relay.register(_RelayNumbers(services))
        return generate_latest(relay) + generate_latest(self._registry)


class _RelayNumbers:
    """Reads a relay when Prometheus asks."""

    def __init__(self, services: "ServerContext") -> None:
        self._services = services

    def describe(self) -> list[Metric]:
        """Nothing is known in advance, and nothing need be: the registry is made for one answer."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One metric after the other."""
        inspector = self._services.relay.inspect()
        counts = inspector.counts
        for kind, (name, text) in _EVENTS.items():
            yield CounterMetricFamily(name, text, value=counts[kind])
        yield _by_reason(counts.__getitem__)
        yield CounterMetricFamily(
            "waypost_agent_rate_limit_rejections",
            "Publishes refused because their sender was over its rate limit.",
            value=counts[f"rejected.{Reason.RATE_LIMITED}"],
        )
        yield _breaker_moves(counts.__getitem__)
        yield from _holdings(inspector)
        yield from _journal(inspector.journal())
        yield GaugeMetricFamily(
            "waypost_connections",
            "Agents connected by WebSocket.",
            value=len(self._services.hub.connected()),
        )


def _by_reason(count: Callable[[str], int]) -> Metric:
    family = CounterMetricFamily(
        "waypost_rejections", "Refused deliveries and publishes, by reason.", labels=["reason"]
    )
    for reason in Reason:
        if reason is not Reason.STORAGE_FULL:  # then nothing can be written down, nor counted
            family.add_metric([reason], count(f"rejected.{reason}"))
    return family


def _breaker_moves(count: Callable[[str], int]) -> Metric:
    family = CounterMetricFamily(
        "waypost_circuit_breaker_transitions",
        "Circuit breakers that changed state.",
        labels=["from", "to"],
    )
    moves = {(before, after) for (before, _), after in TRANSITIONS.items()}
    for before, after in sorted(moves):
        family.add_metric([before, after], count(f"breaker.{before}.{after}"))
    return family


def _holdings(inspector: Inspector) -> Iterator[Metric]:
    totals = inspector.totals()
    messages = GaugeMetricFamily("waypost_messages", "Messages kept now.", labels=["state"])
    messages.add_metric(["pending"], totals.pending)
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


def _journal(journal: JournalStatus) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "waypost_journal_commits", "Batches made durable.", value=journal.commits
    )
    yield CounterMetricFamily(
        "waypost_journal_events", "Events in the journal, ever.", value=journal.seq
    )
    yield GaugeMetricFamily(
        "waypost_storage_full", "1 while the disk is full.", value=float(journal.full)
    )
    yield GaugeMetricFamily(
        "waypost_journal_failed",
        "1 once the journal could not be written, for good.",
        value=float(bool(journal.failure)),
    )
