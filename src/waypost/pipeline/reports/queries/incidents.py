"""Queries for dead letters, loops, anomalies and circuit breakers."""

from operator import itemgetter

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import (
    Anomaly,
    AnomalySummary,
    Breaker,
    BreakerSpan,
    BreakerSummary,
    DeadInbox,
    DeadLetterSummary,
    DeadReason,
    Loop,
    Period,
)
from waypost.pipeline.reports.formatting import shorten
from waypost.pipeline.reports.queries.rounds import Query, Section
from waypost.pipeline.reports.queries.table_reader import ms, rows_of_inboxes, table, total

REASONS_MAX = 12
INBOXES_MAX = 10
LOOPS_MAX = 10
ANOMALIES_MAX = 20
TEXT_MAX = 200
CHAIN_MAX = 16
BREAKERS_MAX = 15
SPANS_MAX = 40
_COUNTS = ("letters", "waiting", "redriven", "purged")
_CASE = ("relay", "sender", "kind", "endpoint")


def query_dead_letters(lake: Lake) -> Section[DeadLetterSummary]:
    """Return dead letters by reason text, and by inbox."""
    rows = table(lake, "dead_letters")
    counts = [total(name) for name in _COUNTS]
    by_reason = rows.groupBy("reason").agg(
        *counts,
        F.count_distinct(F.struct("relay", "endpoint")).alias("inboxes"),
        F.min(ms("first_at")).alias("first_ms"),
        F.max(ms("last_at")).alias("last_ms"),
    )
    by_inbox = rows.groupBy("relay", "endpoint").agg(*counts)
    by_name = (F.col("relay"), F.col("endpoint"))
    reasons, inboxes = yield [
        Query(by_reason, REASONS_MAX, F.desc("letters"), F.col("reason"), sums=_COUNTS),
        Query(by_inbox, INBOXES_MAX, F.desc("letters"), *by_name),
    ]
    messages, waiting, redriven, purged = (reasons.sums[one] for one in _COUNTS)
    return DeadLetterSummary(
        messages=messages,
        waiting=waiting,
        redriven=redriven,
        purged=purged,
        reasons=[
            DeadReason(
                shorten(row["reason"] or "", TEXT_MAX),
                *(row[one] for one in (*_COUNTS, "inboxes", "first_ms", "last_ms")),
            )
            for row in reasons.rows
        ],
        reasons_more=reasons.more,
        inboxes=[
            DeadInbox(row["relay"], row["endpoint"], row["letters"], row["waiting"])
            for row in inboxes.rows
        ],
        inboxes_more=inboxes.more,
    )


def query_anomalies(lake: Lake) -> Section[AnomalySummary]:
    """Return loops by frequency, and anomalies by their distance from the usual."""
    by_chain = (
        table(lake, "loops")
        .groupBy("relay", "endpoint", "chain")
        .agg(
            total("times"),
            F.max("senders").alias("senders"),
            F.min(ms("first_at")).alias("first_ms"),
            F.max(ms("last_at")).alias("last_ms"),
        )
    )
    most_first = (F.desc("times"), F.col("relay"), F.col("endpoint"), F.col("chain"))
    worst_first = (F.desc("observed"), F.desc("days"), *(F.col(one) for one in _CASE))
    loops, anomalies = yield [
        Query(by_chain, LOOPS_MAX, *most_first),
        Query(_by_case(table(lake, "anomalies")), ANOMALIES_MAX, *worst_first),
    ]
    return AnomalySummary(
        loops=[
            Loop(
                row["relay"],
                row["endpoint"],
                list(row["chain"])[-CHAIN_MAX:],
                *(row[one] for one in ("times", "senders", "first_ms", "last_ms")),
            )
            for row in loops.rows
        ],
        loops_more=loops.more,
        anomalies=[_anomaly(row) for row in anomalies.rows],
        anomalies_more=anomalies.more,
    )


def _by_case(anomalies: DataFrame) -> DataFrame:
    """Return the cases of anomalies, each with its worst day and the number of its days."""
    worst = F.struct("observed", "day")
    return anomalies.groupBy(*_CASE).agg(
        F.max_by("why", worst).alias("why"),
        F.max("observed").alias("observed"),
        F.count_distinct("day").alias("days"),
        (F.unix_date(F.max_by("day", worst)).cast("bigint") * 86_400_000).alias("day_ms"),
    )


def _anomaly(row: Row) -> Anomaly:
    return Anomaly(
        relay=row["relay"],
        sender=row["sender"],
        kind=row["kind"],
        endpoint=row["endpoint"],
        why=shorten(row["why"], TEXT_MAX),
        days=row["days"],
        worst_day_ms=row["day_ms"],
    )


def query_breakers(lake: Lake, period: Period) -> Section[BreakerSummary]:
    """Return breakers by time open; one that is still open counts until the period's end."""
    changes = table(lake, "breakers").withColumn("at_ms", ms("at"))
    opens = F.col("after") == "OPEN"
    lasted_ms = F.coalesce(
        F.col("lasted_ms").cast("double"), (F.lit(period.last_ms) - F.col("at_ms")).cast("double")
    )
    by_breaker = changes.groupBy("relay", "endpoint").agg(
        # From half open, it opens again: that is the same incident.
        F.count_if(opens & (F.col("before") == "CLOSED")).alias("opened"),
        F.coalesce(F.sum(F.when(opens, lasted_ms)), F.lit(0.0)).alias("open_ms"),
        # A state that has ended without another change was ended by a start of the relay.
        F.max_by(
            F.when(F.col("lasted_ms").isNull(), F.col("after")).otherwise("CLOSED"), "seq"
        ).alias("last_state"),
        F.count_if(F.col("after") != "CLOSED").alias("spans"),
    )
    longest_first = (F.desc("open_ms"), F.col("relay"), F.col("endpoint"))
    (found,) = yield [Query(by_breaker, BREAKERS_MAX, *longest_first, sums=["opened"])]
    if not found.rows:
        return BreakerSummary()
    of_found = rows_of_inboxes(lake, changes.withColumn("known_ms", lasted_ms), found.rows)
    (spans,) = yield [Query(_longest_spans(of_found))]
    in_order = sorted(spans.rows, key=itemgetter("at_ms"))
    return BreakerSummary(
        breakers=[_breaker(row, in_order) for row in found.rows],
        more=found.more,
        opened=found.sums["opened"],
    )


def _longest_spans(changes: DataFrame) -> DataFrame:
    longest_first = Window.partitionBy("relay", "endpoint").orderBy(F.desc("known_ms"), "seq")
    return (
        changes.where(F.col("after") != "CLOSED")
        .withColumn("rank", F.row_number().over(longest_first))
        .where(F.col("rank") <= SPANS_MAX)
        .select("relay", "endpoint", "at_ms", "lasted_ms", "after")
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
