"""How long messages took, over time and by inbox.

Percentiles of percentiles mean nothing, so they are asked of the messages themselves. They are
`percentile_approx`: a real value of the data whose rank is off by at most 1 in 10,000.
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
from waypost.pipeline.reports.queries.periods import calm_step, step_of
from waypost.pipeline.reports.queries.table_reader import largest, ms, table

INBOXES_MAX = 15
_SHARES = [0.5, 0.95, 0.99]


def ask_latency(lake: Lake, period: Period, messages: int) -> Latency:
    """Waits of those of about so many messages that were handed out, by when they arrived."""
    step_ms = calm_step(period, messages)
    handed_out = (
        table(lake, "messages")
        .where(F.col("wait_ms").isNotNull())
        .select(
            *("relay", "endpoint", "wait_ms", "total_ms"),
            step_of(period, ms("arrived_at"), step_ms),
        )
    )
    steps = handed_out.rollup("at_ms").agg(*_measured()).orderBy("at_ms").collect()
    of_all = [row for row in steps if row["at_ms"] is None]
    if not of_all or not of_all[0]["messages"]:
        return Latency()
    inboxes, more = largest(
        handed_out.groupBy("relay", "endpoint").agg(*_measured()),
        INBOXES_MAX,
        *(F.desc("waited_ms"), F.col("relay"), F.col("endpoint")),
    )
    return Latency(
        overall=_percentiles(of_all[0]),
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
        waited_ms=of_all[0]["waited_ms"],
    )


def _measured() -> list[Column]:
    return [
        F.count(F.lit(1)).alias("messages"),
        F.sum("wait_ms").alias("waited_ms"),
        F.percentile_approx("wait_ms", _SHARES).alias("wait"),
        F.percentile_approx("total_ms", _SHARES).alias("done"),
    ]


def _percentiles(row: Row) -> Percentiles:
    nothing = [None, None, None]
    return Percentiles(row["messages"], *(row["wait"] or nothing), *(row["done"] or nothing))
