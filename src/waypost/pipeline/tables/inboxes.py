"""`inboxes`: one row for each mailbox and day with any event in it.

Arrivals and transitions count on the day of the event, waiting times on the day of arrival.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.latency import percentiles, sorted_times

NAME = "inboxes"

SCHEMA = columns(
    """
    day date, relay string, endpoint string, arrivals bigint, stored bigint, rejected bigint,
    acked bigint, failed bigint, expired bigint, evicted bigint, bytes bigint, senders bigint,
    depth_peak bigint, pressure_peak double, wait_p50_ms double, wait_p95_ms double,
    total_p50_ms double, total_p95_ms double
    """
)

_GROUP = ("day", "relay", "endpoint")
_COUNTS = (
    "arrivals",
    "stored",
    "rejected",
    "acked",
    "failed",
    "expired",
    "evicted",
    "bytes",
    "senders",
    "depth_peak",
)


def build(
    pairs: DataFrame, pressure: DataFrame, transitions: DataFrame, messages: DataFrame
) -> DataFrame:
    """Return the mailboxes, from other tables and the `transitions` of the same days."""
    inboxes = (
        _arrivals(pairs)
        .join(_peaks(pressure), on=[*_GROUP], how="full")
        .join(_transitions(transitions), on=[*_GROUP], how="full")
        .join(_waiting_times(messages), on=[*_GROUP], how="left")
    )
    zero = {name: F.coalesce(name, F.lit(0)) for name in _COUNTS}
    zero["pressure_peak"] = F.coalesce("pressure_peak", F.lit(0.0))
    return inboxes.withColumns(zero).select(*SCHEMA.names)


def _arrivals(pairs: DataFrame) -> DataFrame:
    return pairs.groupBy(*_GROUP).agg(
        *(F.sum(name).alias(name) for name in ("arrivals", "stored", "rejected", "bytes")),
        F.count(F.lit(1)).alias("senders"),
    )


def _peaks(pressure: DataFrame) -> DataFrame:
    return pressure.groupBy(*_GROUP).agg(
        F.max("depth_peak").alias("depth_peak"), F.max("pressure").alias("pressure_peak")
    )


def _transitions(transitions: DataFrame) -> DataFrame:
    kind = F.col("kind")
    was_pending = F.col("was") == "pending"  # a dead letter is purged, not expired
    return transitions.groupBy(*_GROUP).agg(
        F.count_if(kind == "acked").alias("acked"),
        F.count_if(kind == "failed").alias("failed"),
        F.count_if((kind == "expired") & was_pending).alias("expired"),
        F.count_if(kind == "evicted").alias("evicted"),
    )


def _waiting_times(messages: DataFrame) -> DataFrame:
    known = percentiles()
    wanted = [name for name in SCHEMA.names if name in known]
    days = sorted_times(messages, _GROUP)
    return days.select(*_GROUP, *(known[name].alias(name) for name in wanted))
