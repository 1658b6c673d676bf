"""`senders`: one row for each sender with publishes that day."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import (
    happened_us,
    has_endpoint,
    is_rejected,
    is_stored,
    minute_of,
    publishes,
    rejected_for,
    times,
    total,
)
from waypost.policy.reasons import Reason

NAME = "senders"

SCHEMA = columns(
    """
    day date, relay string, sender string, publishes bigint, stored bigint, rejected bigint,
    rate_limited bigint, fanout_exceeded bigint, quota_exceeded bigint, backpressure bigint,
    circuit_open bigint, budget_exceeded bigint, access_denied bigint, bytes bigint,
    recipients bigint, answers bigint, busiest_minute bigint, tier1 bigint, tier2 bigint,
    tier3 bigint
    """
)

_GROUP = ("day", "relay", "sender")
_REASONS = (
    Reason.RATE_LIMITED,
    Reason.FANOUT_EXCEEDED,
    Reason.QUOTA_EXCEEDED,
    Reason.BACKPRESSURE,
    Reason.CIRCUIT_OPEN,
    Reason.BUDGET_EXCEEDED,
    Reason.ACCESS_DENIED,
)


def build(arrivals: DataFrame, pairs: DataFrame) -> DataFrame:
    """Return the senders of `arrivals`; `pairs` are those of the same days."""
    known = _sums(arrivals).join(_partners(pairs), on=[*_GROUP], how="left")
    counts = {name: F.coalesce(name, F.lit(0)) for name in ("recipients", "answers")}
    return known.withColumns(counts).select(*SCHEMA.names)


def _sums(arrivals: DataFrame) -> DataFrame:
    """Sum by minute first, for the busiest one."""
    tier = F.col("tier")
    sums = {
        "stored": times(is_stored()),
        "rejected": times(is_rejected()),
        **{str(reason): times(rejected_for(reason)) for reason in _REASONS},
        "bytes": total(F.col("size"), is_stored()),
        **{f"tier{number}": times(has_endpoint() & (tier == number)) for number in (1, 2, 3)},
    }
    minutes = (
        arrivals.withColumn("minute_us", minute_of(happened_us()))
        .groupBy(*_GROUP, "minute_us")
        .agg(
            total(publishes()).alias("publishes"),
            *(amount.alias(name) for name, amount in sums.items()),
        )
    )
    return minutes.groupBy(*_GROUP).agg(
        F.max("publishes").alias("busiest_minute"),
        *(F.sum(name).alias(name) for name in ("publishes", *sums)),
    )


def _partners(pairs: DataFrame) -> DataFrame:
    """Return the recipients of each sender, and the messages that came back from them that day."""
    back = pairs.select(
        "day",
        "relay",
        F.col("endpoint").alias("sender"),
        F.col("sender").alias("endpoint"),
        F.col("arrivals").alias("replies"),
    )
    both = pairs.join(back, on=[*_GROUP, "endpoint"], how="left")
    return both.groupBy(*_GROUP).agg(
        F.count(F.lit(1)).alias("recipients"),
        F.coalesce(F.sum("replies"), F.lit(0)).alias("answers"),
    )
