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
    UnackedInbox,
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
    unacked, unacked_more = _query_unacked(lake)
    steps = delivered.rollup("at_ms").agg(*_measures()).orderBy("at_ms").collect()
    overall = [row for row in steps if row["at_ms"] is None]
    if not overall or not overall[0]["messages"]:
        return Latency(unacked=unacked, unacked_more=unacked_more)
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
        unacked=unacked,
        unacked_more=unacked_more,
    )


def _query_unacked(lake: Lake) -> tuple[list[UnackedInbox], int]:
    """Return the inboxes with the oldest unacknowledged messages, and how many more there are."""
    waiting = table(lake, "messages").where(F.col("state").isin("pending", "leased"))
    by_inbox = waiting.groupBy("relay", "endpoint").agg(
        F.count(F.lit(1)).alias("messages"),
        F.count_if(F.col("state") == "leased").alias("leased"),
        F.min(ms("arrived_at")).alias("oldest_ms"),
    )
    order = ("oldest_ms", "relay", "endpoint")
    found, more = largest(by_inbox, INBOXES_MAX, *(F.col(one) for one in order))
    names = ("relay", "endpoint", "messages", "leased", "oldest_ms")
    return [UnackedInbox(*(row[one] for one in names)) for row in found], more


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
