"""Queries for waiting times, over time and by inbox.

Percentiles cannot be combined, so they are computed from the messages themselves, with
`percentile_approx`: an actual value whose rank is off by at most 1 in 10,000.
"""

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import (
    Latency,
    LatencyInbox,
    LatencyStep,
    Percentiles,
    Period,
)
from waypost.pipeline.reports.queries.periods import smooth_step, step_of
from waypost.pipeline.reports.queries.table_reader import largest, ms, table

INBOXES_MAX = 15
_SHARES = [0.5, 0.95, 0.99]


def query_latency(lake: Lake, period: Period, messages: int) -> Latency:
    """Return waiting times of delivered messages by arrival; `messages` is roughly their number."""
    step_ms = smooth_step(period, messages)
    delivered = (
        table(lake, "messages")
        .where(F.col("wait_ms").isNotNull())
        .select(
            "relay",
            "endpoint",
            "wait_ms",
            "total_ms",
            step_of(period, ms("arrived_at"), step_ms),
        )
    )
    steps = delivered.rollup("at_ms").agg(*_measures()).orderBy("at_ms").collect()
    overall = [row for row in steps if row["at_ms"] is None]
    if not overall or not overall[0]["messages"]:
        return Latency()
    inboxes, more = largest(
        delivered.groupBy("relay", "endpoint").agg(*_measures()),
        INBOXES_MAX,
        F.desc("waited_ms"),
        F.col("relay"),
        F.col("endpoint"),
    )
    return Latency(
        overall=_percentiles(overall[0]),
        steps=[
            LatencyStep(row["at_ms"], _percentiles(row))
            for row in steps
            if row["at_ms"] is not None
        ],
        step_ms=step_ms,
        inboxes=[
            LatencyInbox(row["relay"], row["endpoint"], row["waited_ms"], _percentiles(row))
            for row in inboxes
        ],
        more=more,
        waited_ms=overall[0]["waited_ms"],
    )


def _measures() -> list[Column]:
    return [
        F.count(F.lit(1)).alias("messages"),
        F.sum("wait_ms").alias("waited_ms"),
        F.percentile_approx("wait_ms", _SHARES).alias("wait"),
        F.percentile_approx("total_ms", _SHARES).alias("total"),
    ]


def _percentiles(row: Row) -> Percentiles:
    nothing = [None, None, None]
    return Percentiles(row["messages"], *(row["wait"] or nothing), *(row["total"] or nothing))
