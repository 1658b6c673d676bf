"""Queries for waiting times, over time and by inbox.

Percentiles cannot be combined, so they are computed from the messages themselves, with
`percentile_approx`: an actual value whose rank is off by at most 1 in 10,000.
"""

from operator import itemgetter

from pyspark.sql import Column, DataFrame, Row
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
from waypost.pipeline.reports.queries.rounds import Query, Section
from waypost.pipeline.reports.queries.table_reader import ms, table, total

INBOXES_MAX = 15
_SHARES = [0.5, 0.95, 0.99]
_UNACKED = ("relay", "endpoint", "messages", "leased", "oldest_ms")


def query_latency(lake: Lake, period: Period) -> Section[Latency]:
    """Return waiting times of delivered messages by arrival, and what is unacknowledged."""
    (stored,) = yield [Query(table(lake, "traffic").agg(total("stored")))]
    step_ms = smooth_step(period, stored.rows[0]["stored"])
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
    inbox = (F.col("relay"), F.col("endpoint"))
    by_inbox = delivered.groupBy(*inbox).agg(*_measures())
    steps, inboxes, waiting = yield [
        Query(delivered.rollup("at_ms").agg(*_measures())),
        Query(by_inbox, INBOXES_MAX, F.desc("waited_ms"), *inbox),
        Query(_unacked(table(lake, "messages")), INBOXES_MAX, F.col("oldest_ms"), *inbox),
    ]
    unacked = [UnackedInbox(*(row[one] for one in _UNACKED)) for row in waiting.rows]
    overall = [row for row in steps.rows if row["at_ms"] is None]
    if not overall or not overall[0]["messages"]:
        return Latency(unacked=unacked, unacked_more=waiting.more)
    in_order = sorted(
        (row for row in steps.rows if row["at_ms"] is not None), key=itemgetter("at_ms")
    )
    return Latency(
        overall=_percentiles(overall[0]),
        steps=[LatencyStep(row["at_ms"], _percentiles(row)) for row in in_order],
        step_ms=step_ms,
        inboxes=[
            LatencyInbox(row["relay"], row["endpoint"], row["waited_ms"], _percentiles(row))
            for row in inboxes.rows
        ],
        more=inboxes.more,
        waited_ms=overall[0]["waited_ms"],
        unacked=unacked,
        unacked_more=waiting.more,
    )


def _unacked(messages: DataFrame) -> DataFrame:
    """Return the inboxes with unacknowledged messages, and their oldest one."""
    waiting = messages.where(F.col("state").isin("pending", "leased"))
    return waiting.groupBy("relay", "endpoint").agg(
        F.count(F.lit(1)).alias("messages"),
        F.count_if(F.col("state") == "leased").alias("leased"),
        F.min(ms("arrived_at")).alias("oldest_ms"),
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
