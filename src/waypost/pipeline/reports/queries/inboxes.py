"""Queries for the fullest inboxes, the busiest inboxes, and the most active senders."""

from operator import itemgetter

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
from waypost.pipeline.reports.queries.rounds import Query, Section
from waypost.pipeline.reports.queries.table_reader import ms, rows_of_inboxes, table, total
from waypost.policy.backpressure import BackpressureConfig

FULLEST_MAX = 20
BUSIEST_MAX = 6
SENDERS_OF_INBOX_MAX = 5
SENDERS_MAX = 15
WARNING_AT = BackpressureConfig().pressure_warning_at
_INBOX = ("relay", "endpoint")


def query_pressure(lake: Lake, period: Period) -> Section[Pressure]:
    """Return the fullest inboxes, as measured on arrivals."""
    rows = table(lake, "pressure")
    is_warned = F.col("pressure") >= WARNING_AT
    fullest_minute = F.max(F.struct("pressure", -ms("minute"), "depth_max"))
    by_inbox = rows.groupBy(*_INBOX).agg(
        fullest_minute.alias("peak"),
        F.max("depth_peak").alias("depth_peak"),
        F.count_if(is_warned).alias("warned"),
        F.max(F.when(is_warned, 1).otherwise(0)).alias("ever_warned"),
    )
    fullest_first = (F.desc("peak.pressure"), F.desc("warned"), *(F.col(one) for one in _INBOX))
    (fullest,) = yield [Query(by_inbox, FULLEST_MAX, *fullest_first, sums=["ever_warned"])]
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
        for row in fullest.rows
    ]
    if not inboxes:
        return Pressure(warning_at=WARNING_AT)
    of_fullest = rows_of_inboxes(lake, rows, fullest.rows)
    by_step = of_fullest.groupBy(*_INBOX, step_of(period, ms("minute"), period.coarse_step_ms))
    (steps,) = yield [Query(by_step.agg(F.max("pressure").alias("pressure")))]
    indexes = {(one.relay, one.endpoint): index for index, one in enumerate(inboxes)}
    return Pressure(
        warning_at=WARNING_AT,
        inboxes=inboxes,
        steps=[
            PressureStep(indexes[row["relay"], row["endpoint"]], row["at_ms"], row["pressure"])
            for row in sorted(steps.rows, key=itemgetter(*_INBOX, "at_ms"))
        ],
        more=fullest.more,
        warned=fullest.sums["ever_warned"],
    )


def query_senders(lake: Lake) -> Section[SenderSummary]:
    """Return the most active senders, and the senders to the busiest inboxes."""
    by_sender = (
        table(lake, "senders")
        .groupBy("relay", "sender")
        .agg(
            *(total(one) for one in ("publishes", "stored", "rejected", "answers", "bytes")),
            F.max("busiest_minute").alias("busiest_minute"),
        )
    )
    pairs = table(lake, "pairs").where(F.col("endpoint") != "")
    by_inbox = pairs.groupBy(*_INBOX).agg(total("arrivals"))
    senders, busiest = yield [
        Query(by_sender, SENDERS_MAX, F.desc("publishes"), F.col("relay"), F.col("sender")),
        Query(by_inbox, BUSIEST_MAX, F.desc("arrivals"), F.col("relay"), F.col("endpoint")),
    ]
    inboxes: list[BusyInbox] = []
    if busiest.rows:
        of_busiest = rows_of_inboxes(lake, pairs, busiest.rows)
        (most_active,) = yield [Query(_most_active_senders(of_busiest))]
        inboxes = [_busy_inbox(inbox, most_active.rows) for inbox in busiest.rows]
    columns = ("relay", "sender", "publishes", "stored", "rejected", "answers", "bytes")
    return SenderSummary(
        senders=[
            SenderTotal(*(row[one] for one in (*columns, "busiest_minute"))) for row in senders.rows
        ],
        more=senders.more,
        inboxes=inboxes,
        inboxes_more=busiest.more,
    )


def _most_active_senders(pairs: DataFrame) -> DataFrame:
    """Return the senders with the most arrivals at each inbox, and the number of all `senders`."""
    by_pair = pairs.groupBy(*_INBOX, "sender").agg(
        total("arrivals"), total("rejected"), F.max_by("last_tier", "last_at").alias("tier")
    )
    of_inbox = Window.partitionBy(*_INBOX)
    rank = F.row_number().over(of_inbox.orderBy(F.desc("arrivals"), "sender"))
    ranked = by_pair.withColumns({"rank": rank, "senders": F.count(F.lit(1)).over(of_inbox)})
    return ranked.where(F.col("rank") <= SENDERS_OF_INBOX_MAX)


def _busy_inbox(inbox: Row, most_active: list[Row]) -> BusyInbox:
    own = [row for row in most_active if all(row[one] == inbox[one] for one in _INBOX)]
    senders = [
        InboxSender(row["sender"], row["arrivals"], row["rejected"], row["tier"] or 0)
        for row in sorted(own, key=itemgetter("rank"))
    ]
    more = own[0]["senders"] - len(own) if own else 0
    return BusyInbox(inbox["relay"], inbox["endpoint"], inbox["arrivals"], senders, more)
