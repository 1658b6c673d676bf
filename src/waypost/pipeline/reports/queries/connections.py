"""Agents that came by WebSocket."""

from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import Period
from waypost.pipeline.reports.incidents import ConnectedAgent, Connections, ConnectionStep
from waypost.pipeline.reports.queries.periods import step_of
from waypost.pipeline.reports.queries.table_reader import largest, ms, table

AGENTS_MAX = 15


def ask_connections(lake: Lake, period: Period) -> Connections:
    """Connections over time and by agent."""
    rows = table(lake, "sessions").select(
        *("relay", "subject", "disconnected_at", "lasted_ms"),
        step_of(period, ms("connected_at")),
    )
    connections = F.count(F.lit(1)).alias("connections")
    still = F.count_if(F.col("disconnected_at").isNull()).alias("still")
    median = F.percentile_approx("lasted_ms", 0.5).alias("median")
    steps = rows.rollup("at_ms").agg(connections, still, median).orderBy("at_ms").collect()
    totals = [row for row in steps if row["at_ms"] is None]
    if not totals or not totals[0]["connections"]:
        return Connections()
    agents, more = largest(
        rows.groupBy("relay", "subject").agg(
            connections,
            still,
            F.coalesce(F.sum(F.col("lasted_ms").cast("double")), F.lit(0.0)).alias("lasted"),
        ),
        AGENTS_MAX,
        *(F.desc("connections"), F.col("relay"), F.col("subject")),
    )
    return Connections(
        connections=totals[0]["connections"],
        still=totals[0]["still"],
        median_ms=totals[0]["median"],
        agents=[
            ConnectedAgent(
                *(row[one] for one in ("relay", "subject", "connections", "lasted", "still"))
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
