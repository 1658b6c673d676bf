"""The metrics of a node. Each partition has those of a relay, below its path, at its owner."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from waypost.wire.cluster_bodies import PartitionStatus

APPEND_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class PartitionFigures(NamedTuple):
    """One partition at one node; `stream` is None if the servers did not answer."""

    number: int
    is_owned: bool
    is_failing: bool
    take_overs: int
    stream: PartitionStatus | None


class NodeFigures(NamedTuple):
    """One node."""

    nodes: int
    is_connected: bool
    partitions: Sequence[PartitionFigures]


class AppendTimes:
    """The durations of appends to the replicated logs, of all partitions of a node."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._histogram = Histogram(
            "waypost_append_seconds",
            "Time until the replicated log answered an append.",
            buckets=APPEND_BUCKETS_S,
            registry=self.registry,
        )

    def record(self, seconds: float) -> None:
        """Count one append."""
        self._histogram.observe(seconds)


def render_metrics(figures: NodeFigures, times: AppendTimes) -> bytes:
    """Return the metrics of a node in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Collector(figures))
    return generate_latest(registry) + generate_latest(times.registry)


class _Collector:
    def __init__(self, figures: NodeFigures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        figures = self._figures
        for name, text, value in (
            ("waypost_cluster_nodes", "Nodes of the cluster that are alive.", figures.nodes),
            (
                "waypost_cluster_connected",
                "Whether this node is connected to a NATS server.",
                figures.is_connected,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield from self._partitions()
        yield from self._streams()

    def _partitions(self) -> Iterator[Metric]:
        owned = _gauge("waypost_partition_owned", "Whether this node owns a partition.")
        failing = _gauge(
            "waypost_partition_failing", "Whether this node cannot follow or own a partition."
        )
        taken = CounterMetricFamily(
            "waypost_partition_take_overs",
            "Times that this node took over a partition.",
            labels=["partition"],
        )
        for one in self._figures.partitions:
            label = [str(one.number)]
            owned.add_metric(label, one.is_owned)
            failing.add_metric(label, one.is_failing)
            taken.add_metric(label, one.take_overs)
        yield from (owned, failing, taken)

    def _streams(self) -> Iterator[Metric]:
        """Yield what the servers know; a partition whose stream cannot be read has no values."""
        unowned = _gauge(
            "waypost_partition_unowned", "Whether no node that is alive owns a partition."
        )
        epoch = _gauge("waypost_partition_epoch", "Epoch of the owner of a partition.")
        lag = _gauge(
            "waypost_partition_lag_records", "Records of the log that this node has not copied yet."
        )
        size = _gauge("waypost_stream_bytes", "Bytes in the stream of a partition.")
        limit = _gauge(
            "waypost_stream_max_bytes",
            "Bytes that the stream of a partition may have; 0: no limit.",
        )
        behind = _gauge(
            "waypost_stream_replicas_behind", "Copies of a stream that are not up to date."
        )
        for one in self._figures.partitions:
            found = one.stream
            if found is None or found.problem:
                continue
            label = [str(one.number)]
            unowned.add_metric(label, not found.is_alive)
            epoch.add_metric(label, found.epoch)
            lag.add_metric(label, found.lag)
            size.add_metric(label, found.stored_bytes)
            limit.add_metric(label, found.max_bytes)
            behind.add_metric(label, found.replicas_behind)
        yield from (unowned, epoch, lag, size, limit, behind)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["partition"])
