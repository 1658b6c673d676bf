"""All questions of a report, one after the other."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import (
    Facts,
    Latency,
    Pressure,
    Rejections,
    Scope,
    Senders,
    Traffic,
)
from waypost.pipeline.reports.incidents import Breakers, Connections, DeadLetters, Oddities
from waypost.pipeline.reports.queries.anomalies import ask_dead_letters, ask_oddities
from waypost.pipeline.reports.queries.breakers import ask_breakers
from waypost.pipeline.reports.queries.connections import ask_connections
from waypost.pipeline.reports.queries.inboxes import WARNING_AT, ask_pressure, ask_senders
from waypost.pipeline.reports.queries.latency import ask_latency
from waypost.pipeline.reports.queries.periods import find_period
from waypost.pipeline.reports.queries.table_reader import table
from waypost.pipeline.reports.queries.traffic import ask_rejections, ask_tiers, ask_traffic

RELAYS_MAX = 10


def gather_facts(lake: Lake) -> Facts:
    """What the tables of a lake say. Their size does not matter for the size of the answer."""
    scope = _ask_scope(lake)
    period = find_period(lake)
    if period is None:
        return Facts(
            scope=scope,
            traffic=Traffic(),
            rejections=Rejections(),
            latency=Latency(),
            pressure=Pressure(warning_at=WARNING_AT),
            tiers=[],
            senders=Senders(),
            breakers=Breakers(),
            dead_letters=DeadLetters(),
            oddities=Oddities(),
            connections=Connections(),
        )
    traffic = ask_traffic(lake, period)
    return Facts(
        scope=scope,
        period=period,
        traffic=traffic,
        rejections=ask_rejections(lake, period),
        latency=ask_latency(lake, period, traffic.total.stored),
        pressure=ask_pressure(lake, period),
        tiers=ask_tiers(lake),
        senders=ask_senders(lake),
        breakers=ask_breakers(lake, period),
        dead_letters=ask_dead_letters(lake),
        oddities=ask_oddities(lake),
        connections=ask_connections(lake, period),
    )


def _ask_scope(lake: Lake) -> Scope:
    named = (
        _names(lake, "traffic", "relay")
        .unionAll(_names(lake, "senders", "sender"))
        .unionAll(_names(lake, "inboxes", "endpoint"))
        .where(F.col("name") != "")
        .groupBy("kind")
        .agg(
            F.count_distinct("relay", "name").alias("names"),
            F.sort_array(F.collect_set(F.when(F.col("kind") == "relay", F.col("name")))).alias(
                "relays"
            ),
        )
        .collect()
    )
    counts = {row["kind"]: row["names"] for row in named}
    relays: list[str] = next((row["relays"] for row in named if row["kind"] == "relay"), [])
    return Scope(
        lake_version=lake.manifest.version,
        days=len(lake.manifest.days("traffic")),
        relays=relays[:RELAYS_MAX],
        relays_more=max(0, len(relays) - RELAYS_MAX),
        senders=counts.get("sender", 0),
        inboxes=counts.get("endpoint", 0),
    )


def _names(lake: Lake, name: str, kind: str) -> DataFrame:
    return table(lake, name).select(F.lit(kind).alias("kind"), "relay", F.col(kind).alias("name"))
