"""`breakers`: one row for each state change of a circuit breaker, and how long it lasted.

A start of the relay ends every state: breakers begin closed.
"""

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
    is_change = F.col("kind") == "breaker"
    is_start = (F.col("kind") == "settings") & (F.col("cause") == "start")
    of_breaker = Window.partitionBy("relay", "endpoint").orderBy("seq")
    later = (
        Window.partitionBy("relay")
        .orderBy(F.desc("seq"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    changes = (
        events.where(is_change | is_start)
        .withColumn("next_change_us", F.lead("at_us").over(of_breaker))
        .withColumn("next_start_us", F.min(F.when(is_start, F.col("at_us"))).over(later))
        .where(is_change)
    )
    until_us = F.least("next_change_us", "next_start_us")
    timed = changes.withColumns(
        {
            "at": F.timestamp_micros("at_us"),
            "lasted_ms": elapsed_ms(F.col("at_us"), until_us),
        }
    )
    return timed.select(*SCHEMA.names)
