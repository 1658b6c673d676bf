"""The fullest inboxes, the busiest ones, and who fills them."""

from pyspark.sql import Row, Window
from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import (
    BusyInbox,
    InboxSender,
    Period,
    Pressure,
    PressureInbox,
    PressureStep,
    Senders,
    SenderTotal,
)
from waypost.pipeline.reports.queries.periods import step_of
from waypost.pipeline.reports.queries.table_reader import largest, ms, only, table, total
from waypost.policy.backpressure import BackpressureConfig

FULLEST_MAX = 20
BUSIEST_MAX = 6
SENDERS_OF_INBOX_MAX = 5
SENDERS_MAX = 15
WARNING_AT = BackpressureConfig().pressure_warning_at
_INBOX = ("relay", "endpoint")


def ask_pressure(lake: Lake, period: Period) -> Pressure:
    """The inboxes that were fullest, as seen by what arrived."""
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
        *(F.desc("peak.pressure"), F.desc("warned"), F.col("relay"), F.col("endpoint")),
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
    places = {(one.relay, one.endpoint): place for place, one in enumerate(inboxes)}
    steps = (
        only(lake, rows, fullest)
        .groupBy(*_INBOX, step_of(period, ms("minute"), period.coarse_step_ms))
        .agg(F.max("pressure").alias("pressure"))
        .orderBy(*_INBOX, "at_ms")
        .collect()
        if fullest
        else []
    )
    return Pressure(
        warning_at=WARNING_AT,
        inboxes=inboxes,
        steps=[
            PressureStep(places[row["relay"], row["endpoint"]], row["at_ms"], row["pressure"])
            for row in steps
        ],
        more=more,
        warned=warned,
    )


def ask_senders(lake: Lake) -> Senders:
    """Who wrote most, and who wrote to the busiest inboxes."""
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
        *(F.desc("arrivals"), F.col("relay"), F.col("endpoint")),
    )
    columns = ("relay", "sender", "publishes", "stored", "rejected", "answers", "bytes")
    return Senders(
        senders=[
            SenderTotal(*(row[one] for one in (*columns, "busiest_minute"))) for row in senders
        ],
        more=more,
        inboxes=_busy_inboxes(lake, busiest) if busiest else [],
        inboxes_more=inboxes_more,
    )


def _busy_inboxes(lake: Lake, busiest: list[Row]) -> list[BusyInbox]:
    by_pair = (
        only(lake, table(lake, "pairs"), busiest)
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
            "place", F.row_number().over(of_inbox.orderBy(F.desc("arrivals"), "sender"))
        )
        .withColumn("senders", F.count(F.lit(1)).over(of_inbox))
        .where(F.col("place") <= SENDERS_OF_INBOX_MAX)
        .orderBy("place")
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
