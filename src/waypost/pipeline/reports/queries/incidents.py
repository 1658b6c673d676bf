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
BRIEF_SHARE = 1_000  # less than a pixel of a chart
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
    )
    longest_first = (F.desc("open_ms"), F.col("relay"), F.col("endpoint"))
    (found,) = yield [Query(by_breaker, BREAKERS_MAX, *longest_first, sums=["opened"])]
    if not found.rows:
        return BreakerSummary()
    of_found = rows_of_inboxes(lake, changes.withColumn("known_ms", lasted_ms), found.rows)
    brief_ms = (period.last_ms - period.first_ms) / BRIEF_SHARE
    (spans,) = yield [Query(_longest_spans(_joined(of_found, brief_ms)))]
    in_order = sorted(spans.rows, key=itemgetter("at_ms"))
    return BreakerSummary(
        breakers=[_breaker(row, in_order) for row in found.rows],
        more=found.more,
        opened=found.sums["opened"],
    )


def _joined(changes: DataFrame, brief_ms: float) -> DataFrame:
    """Return spans; a breaker that opens again after a brief probe was open all the time."""
    in_order = Window.partitionBy("relay", "endpoint").orderBy("seq")
    opens_next = F.lead("after").over(in_order) == "OPEN"
    probes = (F.col("after") == "HALF_OPEN") & (F.col("known_ms") < brief_ms) & opens_next
    follows = (F.col("after") == F.lag("after").over(in_order)) & (
        F.col("at_ms") - F.lag("known_end_ms").over(in_order) < brief_ms
    )
    return (
        changes.withColumn("is_brief_probe", F.coalesce(probes, F.lit(False)))
        .where((F.col("after") != "CLOSED") & ~F.col("is_brief_probe"))
        .withColumn("known_end_ms", F.col("at_ms") + F.col("known_ms"))
        .withColumn("starts", F.when(follows, 0).otherwise(1))
        .withColumn("number", F.sum("starts").over(in_order))
        .groupBy("relay", "endpoint", "number", "after")
        .agg(
            F.min("at_ms").alias("at_ms"),
            F.max_by(F.col("at_ms") + F.col("lasted_ms"), "seq").alias("end_ms"),
            F.max("known_end_ms").alias("known_end_ms"),
        )
    )


def _longest_spans(spans: DataFrame) -> DataFrame:
    of_breaker = Window.partitionBy("relay", "endpoint")
    lasted_ms = F.col("known_end_ms") - F.col("at_ms")
    return (
        spans.withColumn("spans", F.count("*").over(of_breaker))
        .withColumn("rank", F.row_number().over(of_breaker.orderBy(F.desc(lasted_ms), "number")))
        .where(F.col("rank") <= SPANS_MAX)
        .select("relay", "endpoint", "at_ms", "end_ms", "after", "spans")
    )


def _breaker(row: Row, spans: list[Row]) -> Breaker:
    named = (row["relay"], row["endpoint"])
    own = [one for one in spans if (one["relay"], one["endpoint"]) == named]
    return Breaker(
        row["relay"],
        row["endpoint"],
        row["opened"],
        row["open_ms"],
        row["last_state"],
        [_span(one) for one in own],
        own[0]["spans"] - len(own) if own else 0,
    )


def _span(row: Row) -> BreakerSpan:
    end_ms = row["end_ms"]
    return BreakerSpan(row["at_ms"], None if end_ms is None else round(end_ms), row["after"])
