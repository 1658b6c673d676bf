"""`dead_letters`: one row for each mailbox and kind of reason, with the states of its dead letters.

A message counts once, under its last reason, on the day it arrived. Error texts are in `messages`:
there may be as many of them as dead letters.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns

NAME = "dead_letters"

SCHEMA = columns(
    """
    day date, relay string, endpoint string, reason string, letters bigint, senders bigint,
    redriven bigint, purged bigint, waiting bigint, first_at timestamp, last_at timestamp
    """
)


def build(messages: DataFrame) -> DataFrame:
    """Return the dead letters among `messages`, redriven and purged ones included."""
    state = F.col("state")
    by_reason = messages.where(F.col("died_at").isNotNull()).groupBy(
        "day", "relay", "endpoint", F.substring_index("died_of", ": ", 1).alias("reason")
    )
    return by_reason.agg(
        F.count(F.lit(1)).alias("letters"),
        F.countDistinct("sender").alias("senders"),
        F.count_if(F.col("redrives") > 0).alias("redriven"),
        F.count_if(state == "purged").alias("purged"),
        F.count_if(state == "dead").alias("waiting"),
        F.min("died_at").alias("first_at"),
        F.max("died_at").alias("last_at"),
    ).select(*SCHEMA.names)
