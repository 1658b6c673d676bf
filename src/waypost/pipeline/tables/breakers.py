"""`breakers`: one row for each time a circuit breaker changed state, and how long that lasted."""

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
    """Moves of breakers among `events`, which must be of all days: the next move may be later."""
    its_moves = Window.partitionBy("relay", "endpoint").orderBy("seq")
    until_us = F.lead("at_us").over(its_moves)
    moves = events.where(F.col("kind") == "breaker").withColumns(
        {
            "at": F.timestamp_micros("at_us"),
            "lasted_ms": elapsed_ms(F.col("at_us"), until_us),
        }
    )
    return moves.select(*SCHEMA.names)
