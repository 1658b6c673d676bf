"""Queries for the fullest inboxes, the busiest inboxes, and the most active senders."""

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import (
    BusyInbox,
    InboxSender,
    Period,
    Pressure,
    PressureInbox,
    PressureStep,
    SenderSummary,
    SenderTotal,
)
from waypost.pipeline.reports.queries.periods import step_of
from waypost.pipeline.reports.queries.table_reader import largest, ms, rows_of_inboxes, table, total
from waypost.policy.backpressure import BackpressureConfig

FULLEST_MAX = 20
BUSIEST_MAX = 6
SENDERS_OF_INBOX_MAX = 5
SENDERS_MAX = 15
WARNING_AT = BackpressureConfig().pressure_warning_at
_INBOX = ("relay", "endpoint")


def query_pressure(lake: Lake, period: Period) -> Pressure:
    """Return the fullest inboxes, as measured on arrivals."""
    rows = table(lake, "pressure")
    fullest_minute = F.max(F.struct("pressure", -ms("minute"), "depth_max"))
    by_inbox = rows.groupBy(*_INBOX).agg(
        fullest_minute.alias("peak"),
        F.max("depth_peak").alias("depth_peak"),
        F.count_if(F.col("pressure") >= WARNING_AT).alias("warned"),
    )
    fullest, more = largest(
        by_inbox,
        FULLEST_MAX,
        F.desc("peak.pressure"),
        F.desc("warned"),
        F.col("relay"),
        F.col("endpoint"),
    )
    inboxes = [
        PressureInbox(
            row["relay"],
            row["endpoint"],
            row["peak"][0],
            -row["peak"][1],
            row["depth_peak"],
            row["peak"][2],
            row["warned"],
        )
        for row in fullest
    ]
    warned = sum(one.minutes_warned > 0 for one in inboxes)
    if more and warned == len(inboxes):
        warned = by_inbox.where("warned > 0").count()
    return Pressure(
        warning_at=WARNING_AT,
        inboxes=inboxes,
        steps=_pressure_steps(period, rows_of_inboxes(lake, rows, fullest), inboxes),
        more=more,
        warned=warned,
    )


def _pressure_steps(
    period: Period, rows: DataFrame, inboxes: list[PressureInbox]
) -> list[PressureStep]:
    if not inboxes:
        return []
    indexes = {(one.relay, one.endpoint): index for index, one in enumerate(inboxes)}
    steps = (
        rows.groupBy(*_INBOX, step_of(period, ms("minute"), period.coarse_step_ms))
        .agg(F.max("pressure").alias("pressure"))
        .orderBy(*_INBOX, "at_ms")
        .collect()
    )
    return [
        PressureStep(indexes[row["relay"], row["endpoint"]], row["at_ms"], row["pressure"])
        for row in steps
    ]


def query_senders(lake: Lake) -> SenderSummary:
    """Return the most active senders, and the senders to the busiest inboxes."""
    by_sender = (
        table(lake, "senders")
        .groupBy("relay", "sender")
        .agg(
            *(total(one) for one in ("publishes", "stored", "rejected", "answers", "bytes")),
            F.max("busiest_minute").alias("busiest_minute"),
        )
    )
    senders, more = largest(
        by_sender, SENDERS_MAX, F.desc("publishes"), F.col("relay"), F.col("sender")
    )
    pairs = table(lake, "pairs").where(F.col("endpoint") != "")
    busiest, inboxes_more = largest(
        pairs.groupBy(*_INBOX).agg(total("arrivals")),
        BUSIEST_MAX,
        F.desc("arrivals"),
        F.col("relay"),
        F.col("endpoint"),
    )
    columns = ("relay", "sender", "publishes", "stored", "rejected", "answers", "bytes")
    return SenderSummary(
        senders=[
            SenderTotal(*(row[one] for one in (*columns, "busiest_minute"))) for row in senders
        ],
        more=more,
        inboxes=_busy_inboxes(lake, busiest) if busiest else [],
        inboxes_more=inboxes_more,
    )


def _busy_inboxes(lake: Lake, busiest: list[Row]) -> list[BusyInbox]:
    by_pair = (
        rows_of_inboxes(lake, table(lake, "pairs"), busiest)
        .groupBy(*_INBOX, "sender")
        .agg(
            total("arrivals"),
            total("rejected"),
            F.max_by("last_tier", "last_at").alias("tier"),
        )
    )
    of_inbox = Window.partitionBy(*_INBOX)
    ranked = (
        by_pair.withColumn(
            "rank", F.row_number().over(of_inbox.orderBy(F.desc("arrivals"), "sender"))
        )
        .withColumn("senders", F.count(F.lit(1)).over(of_inbox))
        .where(F.col("rank") <= SENDERS_OF_INBOX_MAX)
        .orderBy("rank")
        .collect()
    )
    found = []
    for inbox in busiest:
        own = [row for row in ranked if all(row[one] == inbox[one] for one in _INBOX)]
        senders = [
            InboxSender(row["sender"], row["arrivals"], row["rejected"], row["tier"] or 0)
            for row in own
        ]
        more = own[0]["senders"] - len(own) if own else 0
        found.append(BusyInbox(inbox["relay"], inbox["endpoint"], inbox["arrivals"], senders, more))
    return found
