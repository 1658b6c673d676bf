"""`anomalies`: one row for each sender and day that a person should look at, and why.

Rule 1  A day is compared with the same sender's earlier days, at most two weeks of them.
Rule 2  Every row says in words what was seen, with its numbers; `expected` is what would be usual.
Rule 3  The relay itself is never an anomaly: what it has to say needs no answer.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import times
from waypost.pipeline.tables.loops import stopped
from waypost.pipeline.tables.wording import counted, number, sentence
from waypost.policy.reserved_names import RELAY

NAME = "anomalies"

SCHEMA = columns(
    """
    day date, relay string, sender string, kind string, endpoint string, observed double,
    expected double, why string
    """
)

EARLIER_DAYS = 14
"""How far back a sender is compared with itself."""

FLOOD_REJECTIONS_MIN = 100
FLOOD_SHARE_ABOVE = 0.5
ONE_WAY_PUBLISHES_MIN = 50
ONE_WAY_RECIPIENTS_MIN = 5
ONE_WAY_SINGLE_MIN = 200
"""Publishes to fewer recipients than `ONE_WAY_RECIPIENTS_MIN` that nobody answers."""

BURST_FACTOR = 5
BURST_DAYS_MIN = 3
BURST_MINUTE_MIN = 50


def build(senders: DataFrame, rejections: DataFrame, arrivals: DataFrame) -> DataFrame:
    """What stands out among `senders`, which should begin `EARLIER_DAYS` before what is wanted.

    `rejections` and `arrivals` are those of the wanted days.
    """
    compared = senders.join(_only_counted(rejections), on=["day", "relay", "sender"], how="left")
    kinds = F.array(_flood(), _one_way(), _burst())
    of_senders = (
        compared.withColumns(_earlier())
        .withColumn("median", _median(F.col("usual")))
        .select(
            *("day", "relay", "sender", F.lit(None).cast("string").alias("endpoint")),
            F.inline(F.array_compact(kinds)),
        )
    )
    rows = of_senders.unionByName(_loops(stopped(arrivals)))
    return rows.where(F.col("sender") != RELAY).select(*SCHEMA.names)


def _only_counted(rejections: DataFrame) -> DataFrame:
    """Refusals of a flood of which the journal only tells how many they were."""
    return (
        rejections.where(F.col("count") > 1)
        .groupBy("day", "relay", "sender")
        .agg(F.sum("count").alias("counted"))
    )


def _earlier() -> dict[str, Column]:
    """What a sender's days up to this one tell; days on which it did not publish do not count."""
    its_days = Window.partitionBy("relay", "sender").orderBy(F.unix_date("day"))
    before = its_days.rangeBetween(-EARLIER_DAYS, -1)
    so_far = its_days.rangeBetween(-EARLIER_DAYS, Window.currentRow)
    return {
        "usual": F.sort_array(F.collect_list("busiest_minute").over(before)),
        "answers_so_far": F.sum("answers").over(so_far),
    }


def _median(values: Column) -> Column:
    """Of an array in order."""
    last = F.size(values) - 1
    low, high = F.floor(last / F.lit(2)), F.ceil(last / F.lit(2))
    lower = F.get(values, low.cast("int"))
    return (lower + F.get(values, high.cast("int"))) / F.lit(2.0)


def _found(kind: str, observed: Column, expected: Column, why: Column) -> list[Column]:
    return [
        F.lit(kind).alias("kind"),
        observed.cast("double").alias("observed"),
        expected.cast("double").alias("expected"),
        why.alias("why"),
    ]


def _flood() -> Column:
    """Most of it was refused by the rate limit, or so much that it was only counted."""
    limited, tried = F.col("rate_limited"), F.col("publishes")
    by_share = (limited >= FLOOD_REJECTIONS_MIN) & (limited > tried * FLOOD_SHARE_ABOVE)
    why = sentence(
        "tried to send ", counted(tried, "message"), "; ", number(F.col("rejected")),
        " were refused",
        F.when(limited > 0, sentence(", ", number(limited), " by its rate limit")).otherwise(
            F.lit("")
        ),
    )  # fmt: skip
    found = _found("flood", F.col("rejected"), tried * (1 - FLOOD_SHARE_ABOVE), why)
    return F.when(by_share | F.col("counted").isNotNull(), F.struct(*found))


def _one_way() -> Column:
    """Much was sent, and nobody ever answered."""
    sent, recipients = F.col("publishes"), F.col("recipients")
    many = (sent >= ONE_WAY_PUBLISHES_MIN) & (recipients >= ONE_WAY_RECIPIENTS_MIN)
    insistent = (sent >= ONE_WAY_SINGLE_MIN) & (recipients >= 1)
    why = sentence(
        "sent ", counted(sent, "message"), " to ", counted(recipients, "agent"),
        " and got no answer",
    )  # fmt: skip
    unanswered = (F.col("answers_so_far") == 0) & (many | insistent)
    return F.when(unanswered, F.struct(*_found("one_way", sent, F.lit(0), why)))


def _burst() -> Column:
    """Far more in one minute than the sender's usual busiest minute."""
    busiest, median = F.col("busiest_minute"), F.col("median")
    known = F.size("usual") >= BURST_DAYS_MIN
    much_more = (busiest >= median * BURST_FACTOR) & (busiest >= BURST_MINUTE_MIN)
    why = sentence(
        "sent ", counted(busiest, "message"), " in one minute; its busiest minute usually has ",
        number(median),
    )  # fmt: skip
    return F.when(known & much_more, F.struct(*_found("burst", busiest, median, why)))


def _loops(stopped_arrivals: DataFrame) -> DataFrame:
    """What it sent came back to where it had been."""
    senders = stopped_arrivals.groupBy("day", "relay", "sender", "endpoint").agg(
        times(F.lit(True)).alias("times")
    )
    why = sentence(
        counted(F.col("times"), "message"), " it sent to ", F.col("endpoint"),
        " went in a loop and had to be stopped",
    )  # fmt: skip
    found = _found("loop", F.col("times"), F.lit(0), why)
    return senders.select("day", "relay", "sender", "endpoint", *found)
