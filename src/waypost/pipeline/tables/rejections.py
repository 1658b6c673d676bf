"""`rejections`: one row for each `rejected` event; a counted one is a row with its `count`."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import is_rejected

NAME = "rejections"

SCHEMA = columns(
    """
    day date, relay string, seq bigint, at timestamp, id string, sender string, subject string,
    endpoint string, reason string, detail string, count bigint, tier int, retry_after_ms bigint,
    kept boolean
    """
)


def build(arrivals: DataFrame) -> DataFrame:
    """Return the rejected `arrivals`."""
    rejected = arrivals.where(is_rejected()).withColumn("at", F.timestamp_micros("at_us"))
    return rejected.select(*SCHEMA.names)
