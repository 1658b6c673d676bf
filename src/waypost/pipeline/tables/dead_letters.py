"""`dead_letters`: one row for each mailbox and reason: what became of messages that died of it.

A message counts once, with the reason it died of last, on the day it arrived.
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
    """Those of `messages` that have been dead letters."""
    state = F.col("state")
    letters = messages.where(F.col("died_at").isNotNull()).groupBy(
        "day", "relay", "endpoint", F.col("died_of").alias("reason")
    )
    return letters.agg(
        F.count(F.lit(1)).alias("letters"),
        F.countDistinct("sender").alias("senders"),
        F.count_if(F.col("redrives") > 0).alias("redriven"),
        F.count_if(state == "purged").alias("purged"),
        F.count_if(state == "dead").alias("waiting"),
        F.min("died_at").alias("first_at"),
        F.max("died_at").alias("last_at"),
    ).select(*SCHEMA.names)
