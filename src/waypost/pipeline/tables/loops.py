"""`loops`: one row for each chain on which messages returned to an earlier mailbox.

A loop is a message that its budget stopped: the mailbox is among its ancestors, or an ancestor
appears twice (which a redriven message can cause). `chain` goes from the mailbox to the same
mailbox again.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import is_answer
from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import counted, rejected_for, total, weight
from waypost.policy.reasons import Reason

NAME = "loops"

SCHEMA = columns(
    """
    day date, relay string, endpoint string, chain array<string>, times bigint, senders bigint,
    first_at timestamp, last_at timestamp, why string
    """
)

_GROUP = ("day", "relay", "endpoint", "chain")


def build(arrivals: DataFrame) -> DataFrame:
    """Return the loops among `arrivals`."""
    loops = (
        looping_arrivals(arrivals)
        .withColumn("chain", _chain())
        .groupBy(*_GROUP)
        .agg(
            total(weight()).alias("times"),
            F.countDistinct("sender").alias("senders"),
            F.timestamp_micros(F.min("at_us")).alias("first_at"),
            F.timestamp_micros(F.max("at_us")).alias("last_at"),
        )
    )
    return loops.withColumn("why", _why()).select(*SCHEMA.names)


def looping_arrivals(arrivals: DataFrame) -> DataFrame:
    """Return the `arrivals` that were rejected because they went in a loop."""
    ancestors = F.col("ancestor_chain")
    repeats = F.size(F.array_distinct(ancestors)) < F.size(ancestors)
    looped = ~is_answer() & (_returned() | repeats)
    return arrivals.where(rejected_for(Reason.BUDGET_EXCEEDED) & looped)


def _returned() -> Column:
    return F.array_contains(F.col("ancestor_chain"), F.col("endpoint"))


def _chain() -> Column:
    """Return the chain from this mailbox on, or all of it if the mailbox is not in it."""
    ancestors, endpoint = F.col("ancestor_chain"), F.col("endpoint")
    first = F.greatest(F.array_position(ancestors, endpoint), F.lit(1)).cast("int")
    return F.array_append(F.slice(ancestors, first, F.size(ancestors)), endpoint)


def _why() -> Column:
    chain = F.col("chain")
    closed = F.element_at(chain, 1) == F.col("endpoint")
    hops = counted(F.size(chain) - 1, "hop")
    course = F.when(closed, F.lit(" came back after ")).otherwise(F.lit(" went round for "))
    times = F.col("times")
    how_often = F.when(times == 1, F.lit("once")).otherwise(counted(times, "time"))
    return F.concat(F.array_join(chain, " → "), course, hops, F.lit(", stopped "), how_often)
