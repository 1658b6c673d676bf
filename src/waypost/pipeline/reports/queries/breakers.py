"""Breakers that opened, and for how long."""

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import Period
from waypost.pipeline.reports.incidents import Breaker, Breakers, BreakerSpan
from waypost.pipeline.reports.queries.table_reader import largest, ms, only, table

BREAKERS_MAX = 15
SPANS_MAX = 40


def ask_breakers(lake: Lake, period: Period) -> Breakers:
    """Breakers by how long they were open; one that still is, is open until the period's end."""
    moves = table(lake, "breakers").withColumn("at_ms", ms("at"))
    opens = F.col("after") == "OPEN"
    lasted_ms = F.coalesce(
        F.col("lasted_ms").cast("double"), (F.lit(period.last_ms) - F.col("at_ms")).cast("double")
    )
    by_breaker = moves.groupBy("relay", "endpoint").agg(
        # Only a closed breaker opens; one that was half open opens again.
        F.count_if(opens & (F.col("before") == "CLOSED")).alias("opened"),
        F.coalesce(F.sum(F.when(opens, lasted_ms)), F.lit(0.0)).alias("open_ms"),
        F.max_by("after", "seq").alias("last_state"),
        F.count_if(F.col("after") != "CLOSED").alias("spans"),
    )
    found, more = largest(
        by_breaker, BREAKERS_MAX, F.desc("open_ms"), F.col("relay"), F.col("endpoint")
    )
    if not found:
        return Breakers()
    opened = (
        by_breaker.agg(F.sum("opened")).collect()[0][0]
        if more
        else sum(row["opened"] for row in found)
    )
    spans = _longest_spans(only(lake, moves.withColumn("known_ms", lasted_ms), found))
    return Breakers(breakers=[_breaker(row, spans) for row in found], more=more, opened=opened)


def _longest_spans(moves: DataFrame) -> list[Row]:
    longest_first = Window.partitionBy("relay", "endpoint").orderBy(F.desc("known_ms"), "seq")
    return (
        moves.where(F.col("after") != "CLOSED")
        .withColumn("place", F.row_number().over(longest_first))
        .where(F.col("place") <= SPANS_MAX)
        .select("relay", "endpoint", "at_ms", "lasted_ms", "after")
        .orderBy("relay", "endpoint", "at_ms")
        .collect()
    )


def _breaker(row: Row, spans: list[Row]) -> Breaker:
    own = [
        BreakerSpan(
            one["at_ms"],
            None if one["lasted_ms"] is None else round(one["at_ms"] + one["lasted_ms"]),
            one["after"],
        )
        for one in spans
        if (one["relay"], one["endpoint"]) == (row["relay"], row["endpoint"])
    ]
    return Breaker(
        row["relay"],
        row["endpoint"],
        row["opened"],
        row["open_ms"],
        row["last_state"],
        own,
        row["spans"] - len(own),
    )
