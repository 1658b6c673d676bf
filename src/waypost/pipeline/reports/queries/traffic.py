"""Arrivals and refusals over time, and by tier."""

from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import (
    Period,
    ReasonStep,
    ReasonTotal,
    Rejections,
    TierTotal,
    Traffic,
    TrafficStep,
)
from waypost.pipeline.reports.formatting import cut
from waypost.pipeline.reports.queries.periods import step_of
from waypost.pipeline.reports.queries.table_reader import largest, ms, table, total
from waypost.policy.reasons import DEAD_LETTERED, UNCOUNTED

TEXT_MAX = 200
REASONS_MAX = 12
"""More than there are; a lake may come from a relay that knows others."""
_COUNTS = ("publishes", "stored", "unclaimed", "rejected", "acked", "failed", "bytes")


def ask_traffic(lake: Lake, period: Period) -> Traffic:
    """Arrivals in each step, and the busiest minute of all relays together."""
    rows = table(lake, "traffic").withColumn("minute_ms", ms("minute"))
    minutes = rows.groupBy("minute_ms").agg(*(total(name) for name in _COUNTS))
    peak = F.max(F.struct("publishes", -F.col("minute_ms")))
    steps = (
        minutes.groupBy(step_of(period, F.col("minute_ms")))
        .agg(*(total(name) for name in _COUNTS), peak.alias("peak"))
        .orderBy("at_ms")
        .collect()
    )
    if not steps:
        return Traffic()
    found = [TrafficStep(row["at_ms"], *(row[name] for name in _COUNTS)) for row in steps]
    publishes, minus_minute = max(tuple(row["peak"]) for row in steps)
    return Traffic(
        steps=found,
        total=TrafficStep(
            period.first_ms,
            *(sum(row[name] for row in steps) for name in _COUNTS),
        ),
        busiest_minute_ms=-minus_minute,
        busiest_publishes=publishes,
    )


def ask_rejections(lake: Lake, period: Period) -> Rejections:
    """Refusals by reason; lines that count a flood stand where the count was written."""
    rows = table(lake, "rejections")
    at_an_inbox = F.when(F.col("endpoint") != "", F.struct("relay", "endpoint"))
    by_reason = rows.groupBy("reason").agg(
        total("count"),
        F.count_distinct(F.struct("relay", "sender")).alias("senders"),
        F.count_distinct(at_an_inbox).alias("inboxes"),
        F.max_by("detail", F.struct("at", "relay", "seq")).alias("example"),
    )
    totals, more = largest(by_reason, REASONS_MAX, F.desc("count"), F.col("reason"))
    told = F.col("reason").isin([row["reason"] for row in totals])
    steps = (
        rows.where(told)
        .groupBy("reason", step_of(period, ms("at")))
        .agg(total("count"))
        .orderBy("at_ms", "reason")
        .collect()
    )
    return Rejections(
        reasons=[
            ReasonTotal(
                row["reason"],
                row["count"],
                row["senders"],
                row["inboxes"],
                cut(row["example"] or "", TEXT_MAX),
            )
            for row in totals
        ],
        more=more,
        steps=[ReasonStep(row["at_ms"], row["reason"], row["count"]) for row in steps],
    )


def ask_tiers(lake: Lake) -> list[TierTotal]:
    """Arrivals at inboxes by tier. What was refused before that has no tier yet."""
    kept = F.col("reason").isin([str(one) for one in DEAD_LETTERED])
    rejections = table(lake, "rejections").where(
        ~F.col("reason").isin([str(one) for one in UNCOUNTED])
    )
    # A refusal that keeps the message is in both tables, and is one arrival.
    rejected = rejections.select(
        "tier", F.when(kept, 0).otherwise(F.col("count")).alias("arrivals"), "count"
    )
    stored = table(lake, "messages").groupBy("tier").agg(F.count(F.lit(1)).alias("arrivals"))
    rows = (
        stored.select("tier", "arrivals", F.lit(0).alias("count"))
        .unionAll(rejected)
        .groupBy("tier")
        .agg(total("arrivals"), total("count"))
        .orderBy("tier")
        .collect()
    )
    return [TierTotal(row["tier"], row["arrivals"], row["count"]) for row in rows]
