"""Queries for arrivals, rejections and connections over time, and for tiers."""

from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import (
    AgentConnections,
    ConnectionStep,
    ConnectionSummary,
    Period,
    ReasonStep,
    ReasonTotal,
    Rejections,
    TierTotal,
    Traffic,
    TrafficStep,
)
from waypost.pipeline.reports.formatting import shorten
from waypost.pipeline.reports.queries.periods import step_of
from waypost.pipeline.reports.queries.table_reader import largest, ms, table, total
from waypost.policy.reasons import DEAD_LETTERED, UNCOUNTED

AGENTS_MAX = 15
TEXT_MAX = 200
REASONS_MAX = 12
"""More than Waypost has today; a lake may come from a newer relay."""
_COUNTS = ("publishes", "stored", "unclaimed", "rejected", "acked", "failed", "bytes")


def query_traffic(lake: Lake, period: Period) -> Traffic:
    """Return the arrivals of each step, and the busiest minute of all relays together."""
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


def query_rejections(lake: Lake, period: Period) -> Rejections:
    """Return rejections by reason; a counted one is at the time it was written."""
    rows = table(lake, "rejections")
    at_an_inbox = F.when(F.col("endpoint") != "", F.struct("relay", "endpoint"))
    by_reason = rows.groupBy("reason").agg(
        total("count"),
        F.count_distinct(F.struct("relay", "sender")).alias("senders"),
        F.count_distinct(at_an_inbox).alias("inboxes"),
        F.max_by("detail", F.struct("at", "relay", "seq")).alias("example"),
    )
    totals, more = largest(by_reason, REASONS_MAX, F.desc("count"), F.col("reason"))
    is_shown = F.col("reason").isin([row["reason"] for row in totals])
    steps = (
        rows.where(is_shown)
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
                shorten(row["example"] or "", TEXT_MAX),
            )
            for row in totals
        ],
        more=more,
        steps=[ReasonStep(row["at_ms"], row["reason"], row["count"]) for row in steps],
    )


def query_tiers(lake: Lake) -> list[TierTotal]:
    """Return arrivals at inboxes by tier. Messages rejected earlier have no tier."""
    kept = F.coalesce("kept", F.lit(True))
    dead_lettered = F.col("reason").isin([str(one) for one in DEAD_LETTERED]) & kept
    rejections = table(lake, "rejections").where(
        ~F.col("reason").isin([str(one) for one in UNCOUNTED])
    )
    # A rejection with a dead letter is in both tables, and is one arrival.
    rejected = rejections.select(
        "tier", F.when(dead_lettered, 0).otherwise(F.col("count")).alias("arrivals"), "count"
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


def query_connections(lake: Lake, period: Period) -> ConnectionSummary:
    """Return connections over time and by agent."""
    rows = table(lake, "sessions").select(
        "relay",
        "subject",
        "disconnected_at",
        "lasted_ms",
        step_of(period, ms("connected_at")),
    )
    connections = F.count(F.lit(1)).alias("connections")
    still_open = F.count_if(F.col("disconnected_at").isNull()).alias("open")
    median = F.percentile_approx("lasted_ms", 0.5).alias("median")
    steps = rows.rollup("at_ms").agg(connections, still_open, median).orderBy("at_ms").collect()
    totals = [row for row in steps if row["at_ms"] is None]
    if not totals or not totals[0]["connections"]:
        return ConnectionSummary()
    agents, more = largest(
        rows.groupBy("relay", "subject").agg(
            connections,
            still_open,
            F.coalesce(F.sum(F.col("lasted_ms").cast("double")), F.lit(0.0)).alias("lasted"),
        ),
        AGENTS_MAX,
        F.desc("connections"),
        F.col("relay"),
        F.col("subject"),
    )
    return ConnectionSummary(
        connections=totals[0]["connections"],
        open=totals[0]["open"],
        median_ms=totals[0]["median"],
        agents=[
            AgentConnections(
                row["relay"], row["subject"], row["connections"], row["lasted"], row["open"]
            )
            for row in agents
        ],
        more=more,
        steps=[
            ConnectionStep(row["at_ms"], row["connections"])
            for row in steps
            if row["at_ms"] is not None
        ],
    )
