"""`traffic`: one row for each relay and minute with any event of a message."""

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
    times,
    total,
)

NAME = "traffic"

SCHEMA = columns(
    """
    day date, relay string, minute timestamp, publishes bigint, stored bigint, unclaimed bigint,
    rejected bigint, acked bigint, failed bigint, bytes bigint
    """
)

_GROUP = ("day", "relay", "minute_us")


def build(arrivals: DataFrame, transitions: DataFrame) -> DataFrame:
    """Return the minutes of `arrivals` and of the `transitions` of the same days."""
    unclaimed = ~is_rejected() & ~has_endpoint()
    arrived = (
        arrivals.withColumn("minute_us", minute_of(happened_us()))
        .groupBy(*_GROUP)
        .agg(
            total(publishes()).alias("publishes"),
            times(is_stored()).alias("stored"),
            times(unclaimed).alias("unclaimed"),
            times(is_rejected()).alias("rejected"),
            total(F.col("size"), is_stored()).alias("bytes"),
        )
    )
    kind = F.col("kind")
    ended = (
        transitions.where(kind.isin("acked", "failed"))
        .withColumn("minute_us", minute_of(F.col("at_us")))
        .groupBy(*_GROUP)
        .agg(
            F.count_if(kind == "acked").alias("acked"),
            F.count_if(kind == "failed").alias("failed"),
        )
    )
    minutes = arrived.join(ended, on=[*_GROUP], how="full")
    counts = ("publishes", "stored", "unclaimed", "rejected", "acked", "failed", "bytes")
    return minutes.select(
        "day",
        "relay",
        F.timestamp_micros("minute_us").alias("minute"),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in counts),
    )
