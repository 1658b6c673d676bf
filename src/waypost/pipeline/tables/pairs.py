"""`pairs`: one row for each sender and mailbox with arrivals that day."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import (
    has_endpoint,
    is_rejected,
    is_stored,
    passed_rate_limit,
    times,
    total,
)

NAME = "pairs"

SCHEMA = columns(
    """
    day date, relay string, sender string, endpoint string, arrivals bigint, stored bigint,
    rejected bigint, bytes bigint, first_at timestamp, last_at timestamp, last_seen_ms bigint,
    last_tier int
    """
)


def build(arrivals: DataFrame) -> DataFrame:
    """Return the senders and mailboxes of `arrivals`."""
    at_us, tier = F.col("at_us"), F.col("tier")
    seen_ms = F.when(passed_rate_limit(), F.floor(at_us / F.lit(1000)))
    sums = (
        arrivals.where(has_endpoint())
        .groupBy("day", "relay", "sender", "endpoint")
        .agg(
            times(is_stored()).alias("stored"),
            times(is_rejected()).alias("rejected"),
            total(F.col("size"), is_stored()).alias("bytes"),
            F.min(at_us).alias("first_us"),
            F.max(at_us).alias("last_us"),
            F.max(seen_ms).alias("last_seen_ms"),
            F.max_by(tier, F.when(tier.isNotNull(), F.col("seq"))).alias("last_tier"),
        )
    )
    return sums.select(
        "day",
        "relay",
        "sender",
        "endpoint",
        (F.col("stored") + F.col("rejected")).alias("arrivals"),
        "stored",
        "rejected",
        "bytes",
        F.timestamp_micros("first_us").alias("first_at"),
        F.timestamp_micros("last_us").alias("last_at"),
        "last_seen_ms",
        "last_tier",
    )
