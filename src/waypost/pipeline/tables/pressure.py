"""`pressure`: one row for each mailbox and minute with arrivals, with its fill level then."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import (
    happened_us,
    has_endpoint,
    minute_of,
    total,
    weight,
)

NAME = "pressure"

SCHEMA = columns(
    """
    day date, relay string, endpoint string, minute timestamp, arrivals bigint, depth_peak bigint,
    depth_max bigint, pressure double
    """
)


def build(arrivals: DataFrame) -> DataFrame:
    """Return the fill levels that `arrivals` recorded. Without a cap, pressure is 0."""
    limited = F.col("depth_max") > 0
    share = F.when(limited, F.least(F.col("depth") / F.col("depth_max"), F.lit(1.0)))
    minutes = (
        arrivals.where(has_endpoint())
        .withColumn("minute_us", minute_of(happened_us()))
        .groupBy("day", "relay", "endpoint", "minute_us")
        .agg(
            total(weight()).alias("arrivals"),
            F.max("depth").alias("depth_peak"),
            F.max("depth_max").alias("depth_max"),
            F.coalesce(F.max(share), F.lit(0.0)).alias("pressure"),
        )
    )
    return minutes.withColumn("minute", F.timestamp_micros("minute_us")).select(*SCHEMA.names)
