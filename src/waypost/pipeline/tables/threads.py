"""`threads`: one row for each conversation of several messages, and each day of it.

A message that none follows from on its day is no conversation, and has no row. `exhausted` counts
the messages that were rejected because the conversation had no calls left; `calls_left` is the
least that any of its messages had on arrival.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import is_answer, thread_of
from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import (
    has_endpoint,
    is_exhausted,
    is_rejected,
    total,
    weight,
)

NAME = "threads"

SCHEMA = columns(
    """
    day date, relay string, thread string, messages bigint, answers bigint, rejected bigint,
    exhausted bigint, participants array<string>, calls_left bigint, hops_max int,
    first_at timestamp, last_at timestamp
    """
)

_GROUP = ("day", "relay", "thread")


def build(arrivals: DataFrame) -> DataFrame:
    """Return the conversations among `arrivals`."""
    parties = F.array_union(
        F.collect_set("sender"), F.collect_set(F.when(has_endpoint(), F.col("endpoint")))
    )
    rows = (
        arrivals.withColumn("thread", thread_of())
        .groupBy(*_GROUP)
        .agg(
            total(weight()).alias("messages"),
            F.count_if(is_answer()).alias("answers"),
            total(F.when(is_rejected(), weight()).otherwise(F.lit(0))).alias("rejected"),
            F.count_if(is_exhausted()).alias("exhausted"),
            F.sort_array(parties).alias("participants"),
            F.count_if(F.col("parent").isNotNull()).alias("follow_ups"),
            F.min("call_budget_remaining").alias("calls_left"),
            F.max("hop_count").alias("hops_max"),
            F.timestamp_micros(F.min("at_us")).alias("first_at"),
            F.timestamp_micros(F.max("at_us")).alias("last_at"),
        )
    )
    return rows.where(F.col("follow_ups") > 0).select(*SCHEMA.names)
