"""`anomalies`: one row for each sender and day that a person should look at, and why.

Rule 1  A day is compared with the same sender's earlier days, at most two weeks of them.
Rule 2  Every row says in words what was seen, with its numbers; `expected` is what would be usual.
Rule 3  The relay itself is never an anomaly: what it has to say needs no answer.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from waypost.pipeline.schemas import columns
from waypost.pipeline.tables.conditions import times
from waypost.pipeline.tables.loops import stopped
from waypost.pipeline.tables.wording import counted, number, sentence
from waypost.policy.reserved import RELAY

NAME = "anomalies"

SCHEMA = columns(
    """
    day date, relay string, sender string, kind string, endpoint string, observed double,
    expected double, why string
    """
)

EARLIER_DAYS = 14
"""How far back a sender is compared with itself."""

FLOOD_REFUSALS_MIN = 100
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
    compared = senders.withColumns(_earlier())
    found = [
        _floods(senders, rejections),
        _one_way(compared),
        _bursts(compared),
        _loops(stopped(arrivals)),
    ]
    rows = reduce(DataFrame.unionByName, found)
    return rows.where(F.col("sender") != RELAY).select(*SCHEMA.names)


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


def _rows(
    found: DataFrame, kind: str, observed: Column, expected: Column, why: Column
) -> DataFrame:
    endpoint = F.col("endpoint") if "endpoint" in found.columns else F.lit(None).cast("string")
    return found.select(
        "day",
        "relay",
        "sender",
        F.lit(kind).alias("kind"),
        endpoint.alias("endpoint"),
        observed.cast("double").alias("observed"),
        expected.cast("double").alias("expected"),
        why.alias("why"),
    )


def _floods(senders: DataFrame, rejections: DataFrame) -> DataFrame:
    """Most of it was refused by the rate limit, or so much that it was only counted."""
    limited, tried = F.col("rate_limited"), F.col("publishes")
    by_share = (limited >= FLOOD_REFUSALS_MIN) & (limited > tried * FLOOD_SHARE_ABOVE)
    only_counted = (
        rejections.where(F.col("count") > 1)
        .groupBy("day", "relay", "sender")
        .agg(F.sum("count").alias("counted"))
    )
    known = senders.join(only_counted, on=["day", "relay", "sender"], how="left")
    floods = known.where(by_share | F.col("counted").isNotNull())
    why = sentence(
        "tried to send ", counted(tried, "message"), "; ", number(F.col("rejected")),
        " were refused",
        F.when(limited > 0, sentence(", ", number(limited), " by its rate limit")).otherwise(
            F.lit("")
        ),
    )  # fmt: skip
    return _rows(floods, "flood", F.col("rejected"), tried * (1 - FLOOD_SHARE_ABOVE), why)


def _one_way(senders: DataFrame) -> DataFrame:
    """Much was sent, and nobody ever answered."""
    sent, recipients = F.col("publishes"), F.col("recipients")
    many = (sent >= ONE_WAY_PUBLISHES_MIN) & (recipients >= ONE_WAY_RECIPIENTS_MIN)
    insistent = (sent >= ONE_WAY_SINGLE_MIN) & (recipients >= 1)
    unanswered = senders.where((F.col("answers_so_far") == 0) & (many | insistent))
    why = sentence(
        "sent ", counted(sent, "message"), " to ", counted(recipients, "agent"),
        " and got no answer",
    )  # fmt: skip
    return _rows(unanswered, "one_way", sent, F.lit(0), why)


def _bursts(senders: DataFrame) -> DataFrame:
    """Far more in one minute than the sender's usual busiest minute."""
    busiest, usual = F.col("busiest_minute"), F.col("usual")
    compared = senders.where(F.size(usual) >= BURST_DAYS_MIN).withColumn("median", _median(usual))
    much_more = busiest >= F.col("median") * BURST_FACTOR
    bursts = compared.where(much_more & (busiest >= BURST_MINUTE_MIN))
    why = sentence(
        "sent ", counted(busiest, "message"), " in one minute; its busiest minute usually has ",
        number(F.col("median")),
    )  # fmt: skip
    return _rows(bursts, "burst", busiest, F.col("median"), why)


def _loops(stopped_arrivals: DataFrame) -> DataFrame:
    """What it sent came back to where it had been."""
    senders = stopped_arrivals.groupBy("day", "relay", "sender", "endpoint").agg(
        times(F.lit(True)).alias("times")
    )
    why = sentence(
        counted(F.col("times"), "message"), " it sent to ", F.col("endpoint"),
        " went in a loop and had to be stopped",
    )  # fmt: skip
    return _rows(senders, "loop", F.col("times"), F.lit(0), why)
