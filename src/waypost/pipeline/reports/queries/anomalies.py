"""What went wrong: dead letters, loops, and senders that stood out."""

from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.formatting import cut
from waypost.pipeline.reports.incidents import (
    Anomaly,
    DeadInbox,
    DeadLetters,
    DeadReason,
    Loop,
    Oddities,
)
from waypost.pipeline.reports.queries.table_reader import largest, ms, table, total

REASONS_MAX = 12
INBOXES_MAX = 10
LOOPS_MAX = 10
ANOMALIES_MAX = 20
TEXT_MAX = 200
CHAIN_MAX = 16
_COUNTS = ("letters", "waiting", "redriven", "purged")


def ask_dead_letters(lake: Lake) -> DeadLetters:
    """Dead letters by the text of their reason, and by inbox."""
    rows = table(lake, "dead_letters")
    counts = [total(name) for name in _COUNTS]
    by_reason = rows.groupBy("reason").agg(
        *counts,
        F.count_distinct(F.struct("relay", "endpoint")).alias("inboxes"),
        F.min(ms("first_at")).alias("first_ms"),
        F.max(ms("last_at")).alias("last_ms"),
    )
    by_inbox = rows.groupBy("relay", "endpoint").agg(*counts)
    reasons, reasons_more = largest(by_reason, REASONS_MAX, F.desc("letters"), F.col("reason"))
    if not reasons:
        return DeadLetters()
    inboxes, inboxes_more = largest(
        by_inbox, INBOXES_MAX, F.desc("letters"), F.col("relay"), F.col("endpoint")
    )
    counted = rows.agg(*counts).collect() if reasons_more else reasons
    letters, waiting, redriven, purged = (sum(row[one] for row in counted) for one in _COUNTS)
    return DeadLetters(
        letters=letters,
        waiting=waiting,
        redriven=redriven,
        purged=purged,
        reasons=[
            DeadReason(
                cut(row["reason"] or "", TEXT_MAX),
                *(row[one] for one in (*_COUNTS, "inboxes", "first_ms", "last_ms")),
            )
            for row in reasons
        ],
        reasons_more=reasons_more,
        inboxes=[
            DeadInbox(row["relay"], row["endpoint"], row["letters"], row["waiting"])
            for row in inboxes
        ],
        inboxes_more=inboxes_more,
    )


def ask_oddities(lake: Lake) -> Oddities:
    """Loops by how often they were stopped; anomalies by how far they were from what is usual."""
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
    loops, loops_more = largest(
        by_chain,
        LOOPS_MAX,
        *(F.desc("times"), F.col("relay"), F.col("endpoint"), F.col("chain")),
    )
    anomalies, anomalies_more = _ask_anomalies(lake)
    return Oddities(
        loops=[
            Loop(
                row["relay"],
                row["endpoint"],
                list(row["chain"])[-CHAIN_MAX:],
                *(row[one] for one in ("times", "senders", "first_ms", "last_ms")),
            )
            for row in loops
        ],
        loops_more=loops_more,
        anomalies=anomalies,
        anomalies_more=anomalies_more,
    )


def _ask_anomalies(lake: Lake) -> tuple[list[Anomaly], int]:
    worst = F.struct("observed", "day")
    by_case = (
        table(lake, "anomalies")
        .groupBy("relay", "sender", "kind", "endpoint")
        .agg(
            F.max_by("why", worst).alias("why"),
            F.max("observed").alias("observed"),
            F.count_distinct("day").alias("days"),
            (F.unix_date(F.max_by("day", worst)).cast("bigint") * 86_400_000).alias("day_ms"),
        )
    )
    rows, more = largest(
        by_case,
        ANOMALIES_MAX,
        *(F.desc("observed"), F.desc("days")),
        *(F.col(one) for one in ("relay", "sender", "kind", "endpoint")),
    )
    found = [
        Anomaly(
            relay=row["relay"],
            sender=row["sender"],
            kind=row["kind"],
            endpoint=row["endpoint"],
            why=cut(row["why"], TEXT_MAX),
            days=row["days"],
            worst_day_ms=row["day_ms"],
        )
        for row in rows
    ]
    return found, more
