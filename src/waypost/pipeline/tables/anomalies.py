"""`anomalies`: one row for each sender and day with conspicuous traffic, and why.

Rule 1  A day is compared with the same sender's earlier days, at most two weeks back.
Rule 2  Every row has a sentence with the figures; `expected` is the usual value.
Rule 3  The relay itself is never an anomaly: its notifications need no answer.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import thread_of
from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import counted, is_exhausted, number, sentence, times
from waypost.pipeline.tables.loops import looping_arrivals
from waypost.policy.reserved_names import RELAY

NAME = "anomalies"

SCHEMA = columns(
    """
    day date, relay string, sender string, kind string, endpoint string, observed double,
    expected double, why string
    """
)

EARLIER_DAYS = 14
"""Days back for the comparison of a sender with itself."""

FLOOD_REJECTIONS_MIN = 100
FLOOD_SHARE_ABOVE = 0.5
ONE_WAY_PUBLISHES_MIN = 50
ONE_WAY_RECIPIENTS_MIN = 5
ONE_WAY_SINGLE_MIN = 200
"""Unanswered publishes, for fewer recipients than `ONE_WAY_RECIPIENTS_MIN`."""

EXHAUSTED_MIN = 3
"""Messages from one agent to another whose conversations had no calls left."""

BURST_FACTOR = 5
BURST_DAYS_MIN = 3
BURST_MINUTE_MIN = 50


def build(senders: DataFrame, rejections: DataFrame, arrivals: DataFrame) -> DataFrame:
    """Return the anomalies among `senders`, which begin `EARLIER_DAYS` before the wanted days.

    `rejections` and `arrivals` are those of the wanted days.
    """
    compared = senders.join(_only_counted(rejections), on=["day", "relay", "sender"], how="left")
    kinds = F.array(_flood(), _one_way(), _burst())
    of_senders = (
        compared.withColumns(_earlier())
        .withColumn("median", _median(F.col("usual")))
        .select(
            "day",
            "relay",
            "sender",
            F.lit(None).cast("string").alias("endpoint"),
            F.inline(F.array_compact(kinds)),
        )
    )
    rows = of_senders.unionByName(_loops(looping_arrivals(arrivals))).unionByName(
        _exhausted(arrivals.where(is_exhausted()))
    )
    return rows.where(F.col("sender") != RELAY).select(*SCHEMA.names)


def _only_counted(rejections: DataFrame) -> DataFrame:
    """Return the rejections of floods that the journal only counts."""
    return (
        rejections.where(F.col("count") > 1)
        .groupBy("day", "relay", "sender")
        .agg(F.sum("count").alias("counted"))
    )


def _earlier() -> dict[str, Column]:
    """Return values of a sender's earlier days; days without publishes do not count."""
    its_days = Window.partitionBy("relay", "sender").orderBy(F.unix_date("day"))
    before = its_days.rangeBetween(-EARLIER_DAYS, -1)
    so_far = its_days.rangeBetween(-EARLIER_DAYS, Window.currentRow)
    return {
        "usual": F.sort_array(F.collect_list("busiest_minute").over(before)),
        "answers_so_far": F.sum("answers").over(so_far),
    }


def _median(values: Column) -> Column:
    """Return the median of a sorted array."""
    last = F.size(values) - 1
    low, high = F.floor(last / F.lit(2)), F.ceil(last / F.lit(2))
    lower = F.get(values, low.cast("int"))
    return (lower + F.get(values, high.cast("int"))) / F.lit(2.0)


def _anomaly(kind: str, observed: Column, expected: Column, why: Column) -> list[Column]:
    return [
        F.lit(kind).alias("kind"),
        observed.cast("double").alias("observed"),
        expected.cast("double").alias("expected"),
        why.alias("why"),
    ]


def _flood() -> Column:
    """Detect a flood: mostly rejected by the rate limit, or rejections that were only counted."""
    limited, publishes = F.col("rate_limited"), F.col("publishes")
    by_share = (limited >= FLOOD_REJECTIONS_MIN) & (limited > publishes * FLOOD_SHARE_ABOVE)
    why = sentence(
        "tried to send ", counted(publishes, "message"), "; ", number(F.col("rejected")),
        " were rejected",
        F.when(limited > 0, sentence(", ", number(limited), " by its rate limit")).otherwise(
            F.lit("")
        ),
    )  # fmt: skip
    found = _anomaly("flood", F.col("rejected"), publishes * (1 - FLOOD_SHARE_ABOVE), why)
    return F.when(by_share | F.col("counted").isNotNull(), F.struct(*found))


def _one_way() -> Column:
    """Detect one-way traffic: many messages and never an answer."""
    sent, recipients = F.col("publishes"), F.col("recipients")
    to_many = (sent >= ONE_WAY_PUBLISHES_MIN) & (recipients >= ONE_WAY_RECIPIENTS_MIN)
    to_few = (sent >= ONE_WAY_SINGLE_MIN) & (recipients >= 1)
    why = sentence(
        "sent ", counted(sent, "message"), " to ", counted(recipients, "agent"),
        " and got no answer",
    )  # fmt: skip
    unanswered = (F.col("answers_so_far") == 0) & (to_many | to_few)
    return F.when(unanswered, F.struct(*_anomaly("one_way", sent, F.lit(0), why)))


def _burst() -> Column:
    """Detect a burst: far more in one minute than in the sender's usual busiest minute."""
    busiest, median = F.col("busiest_minute"), F.col("median")
    known = F.size("usual") >= BURST_DAYS_MIN
    much_more = (busiest >= median * BURST_FACTOR) & (busiest >= BURST_MINUTE_MIN)
    why = sentence(
        "sent ", counted(busiest, "message"), " in one minute; its busiest minute usually has ",
        number(median),
    )  # fmt: skip
    return F.when(known & much_more, F.struct(*_anomaly("burst", busiest, median, why)))


def _loops(arrivals: DataFrame) -> DataFrame:
    """Return the senders of messages that were stopped because they went in a loop."""
    senders = arrivals.groupBy("day", "relay", "sender", "endpoint").agg(
        times(F.lit(True)).alias("times")
    )
    why = sentence(
        counted(F.col("times"), "message"), " it sent to ", F.col("endpoint"),
        " went in a loop and had to be stopped",
    )  # fmt: skip
    found = _anomaly("loop", F.col("times"), F.lit(0), why)
    return senders.select("day", "relay", "sender", "endpoint", *found)


def _exhausted(arrivals: DataFrame) -> DataFrame:
    """Return the pairs whose conversations ran into their call budget again and again."""
    pairs = arrivals.groupBy("day", "relay", "sender", "endpoint").agg(
        times(F.lit(True)).alias("times"),
        F.countDistinct(thread_of()).alias("threads"),
        F.max_by(thread_of(), "seq").alias("last"),
    )
    why = sentence(
        counted(F.col("times"), "message"), " it sent to ", F.col("endpoint"),
        " came after the last call of ", counted(F.col("threads"), "conversation"),
        "; the last of them is thread ", F.col("last"),
    )  # fmt: skip
    found = _anomaly("exhausted", F.col("times"), F.lit(0), why)
    often = pairs.where(F.col("times") >= EXHAUSTED_MIN)
    return often.select("day", "relay", "sender", "endpoint", *found)
