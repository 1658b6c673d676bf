"""`sessions`: one row for each connection of an agent to a served relay.

Connections that share a mailbox are one, from the first to the last. A relay that is killed records
no end of its connections. Their rows have no `disconnected_at`, like open connections.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import elapsed_ms

NAME = "sessions"

SCHEMA = columns(
    """
    day date, relay string, subject string, connected_at timestamp, disconnected_at timestamp,
    lasted_ms double
    """
)


def build(events: DataFrame) -> DataFrame:
    """Return the connections among `events` of all days: one may end on a later day."""
    of_agent = Window.partitionBy("relay", "subject").orderBy("seq")
    next_is_end = F.lead("action").over(of_agent) == "disconnected"
    ended_us = F.when(next_is_end, F.lead("at_us").over(of_agent))
    changes = events.where(F.col("kind") == "session").withColumn("ended_us", ended_us)
    sessions = changes.where(F.col("action") == "connected").withColumns(
        {
            "connected_at": F.timestamp_micros("at_us"),
            "disconnected_at": F.timestamp_micros("ended_us"),
            "lasted_ms": elapsed_ms(F.col("at_us"), F.col("ended_us")),
        }
    )
    return sessions.select(*SCHEMA.names)
