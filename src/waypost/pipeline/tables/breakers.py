"""`breakers`: one row for each state change of a circuit breaker, and how long it lasted."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import elapsed_ms

NAME = "breakers"

SCHEMA = columns(
    """
    day date, relay string, seq bigint, at timestamp, endpoint string, before string, after string,
    occasion string, lasted_ms double
    """
)


def build(events: DataFrame) -> DataFrame:
    """Return the state changes among `events` of all days: the next one may be on a later day."""
    of_breaker = Window.partitionBy("relay", "endpoint").orderBy("seq")
    until_us = F.lead("at_us").over(of_breaker)
    changes = events.where(F.col("kind") == "breaker").withColumns(
        {
            "at": F.timestamp_micros("at_us"),
            "lasted_ms": elapsed_ms(F.col("at_us"), until_us),
        }
    )
    return changes.select(*SCHEMA.names)
