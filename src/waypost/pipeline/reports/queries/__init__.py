"""Queries over the tables of a lake for a report. Each returns a few hundred rows at most."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import (
    AnomalySummary,
    BreakerSummary,
    ConnectionSummary,
    DeadLetterSummary,
    Latency,
    Pressure,
    Rejections,
    ReportData,
    Scope,
    SenderSummary,
    Traffic,
)
from waypost.pipeline.reports.queries.inboxes import WARNING_AT, query_pressure, query_senders
from waypost.pipeline.reports.queries.incidents import (
    query_anomalies,
    query_breakers,
    query_dead_letters,
)
from waypost.pipeline.reports.queries.latency import query_latency
from waypost.pipeline.reports.queries.periods import query_period
from waypost.pipeline.reports.queries.rounds import Query, Section, run_sections
from waypost.pipeline.reports.queries.table_reader import table
from waypost.pipeline.reports.queries.traffic import (
    query_connections,
    query_rejections,
    query_tiers,
    query_traffic,
)

RELAYS_MAX = 10


def query_report_data(lake: Lake) -> ReportData:
    """Query all data of a report; its size does not depend on that of the lake."""
    covered = run_sections({"scope": _query_scope(lake), "period": query_period(lake)})
    period = covered["period"]
    if period is None:
        return ReportData(
            **covered,
            traffic=Traffic(),
            rejections=Rejections(),
            latency=Latency(),
            pressure=Pressure(warning_at=WARNING_AT),
            tiers=[],
            senders=SenderSummary(),
            breakers=BreakerSummary(),
            dead_letters=DeadLetterSummary(),
            anomalies=AnomalySummary(),
            connections=ConnectionSummary(),
        )
    sections = {
        "traffic": query_traffic(lake, period),
        "rejections": query_rejections(lake, period),
        "latency": query_latency(lake, period),
        "pressure": query_pressure(lake, period),
        "tiers": query_tiers(lake),
        "senders": query_senders(lake),
        "breakers": query_breakers(lake, period),
        "dead_letters": query_dead_letters(lake),
        "anomalies": query_anomalies(lake),
        "connections": query_connections(lake, period),
    }
    return ReportData(**covered, **run_sections(sections))


def _query_scope(lake: Lake) -> Section[Scope]:
    names = (
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
    )
    (found,) = yield [Query(names)]
    counts = {row["kind"]: row["names"] for row in found.rows}
    relays: list[str] = next((row["relays"] for row in found.rows if row["kind"] == "relay"), [])
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
