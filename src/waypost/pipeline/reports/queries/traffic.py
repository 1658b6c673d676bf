"""Queries for arrivals, rejections and connections over time, and for tiers."""

from operator import itemgetter

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
from waypost.pipeline.reports.queries.rounds import Query, Section
from waypost.pipeline.reports.queries.table_reader import ms, table, total
from waypost.policy.reasons import DEAD_LETTERED, UNCOUNTED

AGENTS_MAX = 15
TEXT_MAX = 200
REASONS_MAX = 12
"""More than Waypost has today; a lake may come from a newer relay."""
_COUNTS = ("publishes", "stored", "unclaimed", "rejected", "acked", "failed", "bytes")


def query_traffic(lake: Lake, period: Period) -> Section[Traffic]:
    """Return the arrivals of each step, and the busiest minute of all relays together."""
    rows = table(lake, "traffic").withColumn("minute_ms", ms("minute"))
    minutes = rows.groupBy("minute_ms").agg(*(total(name) for name in _COUNTS))
    peak = F.max(F.struct("publishes", -F.col("minute_ms")))
    by_step = minutes.groupBy(step_of(period, F.col("minute_ms"))).agg(
        *(total(name) for name in _COUNTS), peak.alias("peak")
    )
    (found,) = yield [Query(by_step)]
    if not found.rows:
        return Traffic()
    steps = sorted(found.rows, key=itemgetter("at_ms"))
    publishes, minus_minute = max(tuple(row["peak"]) for row in steps)
    return Traffic(
        steps=[TrafficStep(row["at_ms"], *(row[name] for name in _COUNTS)) for row in steps],
        total=TrafficStep(
            period.first_ms,
            *(sum(row[name] for row in steps) for name in _COUNTS),
        ),
        busiest_minute_ms=-minus_minute,
        busiest_publishes=publishes,
    )


def query_rejections(lake: Lake, period: Period) -> Section[Rejections]:
    """Return rejections by reason; a counted one is at the time it was written."""
    rows = table(lake, "rejections")
    at_an_inbox = F.when(F.col("endpoint") != "", F.struct("relay", "endpoint"))
    by_reason = rows.groupBy("reason").agg(
        total("count"),
        F.count_distinct(F.struct("relay", "sender")).alias("senders"),
        F.count_distinct(at_an_inbox).alias("inboxes"),
        F.max_by("detail", F.struct("at", "relay", "seq")).alias("example"),
    )
    (totals,) = yield [Query(by_reason, REASONS_MAX, F.desc("count"), F.col("reason"))]
    is_shown = F.col("reason").isin([row["reason"] for row in totals.rows])
    by_step = rows.where(is_shown).groupBy("reason", step_of(period, ms("at")))
    (steps,) = yield [Query(by_step.agg(total("count")))]
    return Rejections(
        reasons=[
            ReasonTotal(
                row["reason"],
                row["count"],
                row["senders"],
                row["inboxes"],
                shorten(row["example"] or "", TEXT_MAX),
            )
            for row in totals.rows
        ],
        more=totals.more,
        steps=[
            ReasonStep(row["at_ms"], row["reason"], row["count"])
            for row in sorted(steps.rows, key=itemgetter("at_ms", "reason"))
        ],
    )


def query_tiers(lake: Lake) -> Section[list[TierTotal]]:
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
    by_tier = (
        stored.select("tier", "arrivals", F.lit(0).alias("count"))
        .unionAll(rejected)
        .groupBy("tier")
        .agg(total("arrivals"), total("count"))
    )
    (found,) = yield [Query(by_tier)]
    return [
        TierTotal(row["tier"], row["arrivals"], row["count"])
        for row in sorted(found.rows, key=lambda row: row["tier"] or 0)
    ]


def query_connections(lake: Lake, period: Period) -> Section[ConnectionSummary]:
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
    by_agent = rows.groupBy("relay", "subject").agg(
        connections,
        still_open,
        F.coalesce(F.sum(F.col("lasted_ms").cast("double")), F.lit(0.0)).alias("lasted"),
    )
    most_first = (F.desc("connections"), F.col("relay"), F.col("subject"))
    steps, agents = yield [
        Query(rows.rollup("at_ms").agg(connections, still_open, median)),
        Query(by_agent, AGENTS_MAX, *most_first),
    ]
    all_steps = [row for row in steps.rows if row["at_ms"] is None]
    if not all_steps or not all_steps[0]["connections"]:
        return ConnectionSummary()
    in_order = sorted(
        (row for row in steps.rows if row["at_ms"] is not None), key=itemgetter("at_ms")
    )
    return ConnectionSummary(
        connections=all_steps[0]["connections"],
        open=all_steps[0]["open"],
        median_ms=all_steps[0]["median"],
        agents=[
            AgentConnections(
                row["relay"], row["subject"], row["connections"], row["lasted"], row["open"]
            )
            for row in agents.rows
        ],
        more=agents.more,
        steps=[ConnectionStep(row["at_ms"], row["connections"]) for row in in_order],
    )
