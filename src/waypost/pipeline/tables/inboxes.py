"""`inboxes`: one row for each mailbox and day on which anything happened in it.

What arrived and what was done is counted on the day it happened; how long messages waited, on the
day they arrived.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.latency import in_order, percentiles

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
    *("arrivals", "stored", "rejected", "acked", "failed", "expired", "evicted"),
    *("bytes", "senders", "depth_peak"),
)


def build(
    pairs: DataFrame, pressure: DataFrame, movements: DataFrame, messages: DataFrame
) -> DataFrame:
    """Mailboxes, out of other tables of the same days and the `movements` on those days."""
    whole = (
        _came(pairs)
        .join(_fullest(pressure), on=[*_GROUP], how="full")
        .join(_done(movements), on=[*_GROUP], how="full")
        .join(_times(messages), on=[*_GROUP], how="left")
    )
    zero = {name: F.coalesce(name, F.lit(0)) for name in _COUNTS}
    zero["pressure_peak"] = F.coalesce("pressure_peak", F.lit(0.0))
    return whole.withColumns(zero).select(*SCHEMA.names)


def _came(pairs: DataFrame) -> DataFrame:
    return pairs.groupBy(*_GROUP).agg(
        *(F.sum(name).alias(name) for name in ("arrivals", "stored", "rejected", "bytes")),
        F.count(F.lit(1)).alias("senders"),
    )


def _fullest(pressure: DataFrame) -> DataFrame:
    return pressure.groupBy(*_GROUP).agg(
        F.max("depth_peak").alias("depth_peak"), F.max("pressure").alias("pressure_peak")
    )


def _done(movements: DataFrame) -> DataFrame:
    kind = F.col("kind")
    in_line = F.col("was") == "pending"  # what was dead is not expired but purged
    return movements.groupBy(*_GROUP).agg(
        F.count_if(kind == "acked").alias("acked"),
        F.count_if(kind == "failed").alias("failed"),
        F.count_if((kind == "expired") & in_line).alias("expired"),
        F.count_if(kind == "evicted").alias("evicted"),
    )


def _times(messages: DataFrame) -> DataFrame:
    known = percentiles()
    wanted = [name for name in SCHEMA.names if name in known]
    days = in_order(messages, _GROUP)
    return days.select(*_GROUP, *(known[name].alias(name) for name in wanted))
