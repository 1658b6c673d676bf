"""`pairs`: one row for each sender and mailbox it wrote to that day."""

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

_TIERS = 4  # 1 to 3, in the lowest bits of a number that sorts by seq


def build(arrivals: DataFrame) -> DataFrame:
    """Who wrote to whom among `arrivals`."""
    at_us = F.col("at_us")
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
            F.max(F.col("seq") * _TIERS + F.col("tier")).alias("last"),
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
        F.pmod(F.col("last"), F.lit(_TIERS)).cast("int").alias("last_tier"),
    )
