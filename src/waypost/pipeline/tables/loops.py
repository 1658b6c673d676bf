"""`loops`: one row for each way on which messages came back to a mailbox they had been in.

A loop is what the budget stopped: the mailbox is among the message's ancestors, or the ancestors
repeat themselves (which a message put back by hand can bring about). `chain` goes from the
mailbox, the first time, to the same mailbox again.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import rejected_for, total, weight
from waypost.pipeline.tables.wording import counted
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
    """Loops among `arrivals`."""
    loops = (
        stopped(arrivals)
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


def stopped(arrivals: DataFrame) -> DataFrame:
    """Those of `arrivals` that were refused because they went in a loop."""
    ancestors = F.col("ancestor_chain")
    repeats = F.size(F.array_distinct(ancestors)) < F.size(ancestors)
    return arrivals.where(rejected_for(Reason.BUDGET_EXCEEDED) & (_came_back() | repeats))


def _came_back() -> Column:
    return F.array_contains(F.col("ancestor_chain"), F.col("endpoint"))


def _chain() -> Column:
    """From the first time in this mailbox on, or the whole way if it never was."""
    ancestors, endpoint = F.col("ancestor_chain"), F.col("endpoint")
    first = F.greatest(F.array_position(ancestors, endpoint), F.lit(1)).cast("int")
    return F.array_append(F.slice(ancestors, first, F.size(ancestors)), endpoint)


def _why() -> Column:
    chain = F.col("chain")
    closed = F.element_at(chain, 1) == F.col("endpoint")
    hops = counted(F.size(chain) - 1, "hop")
    way = F.when(closed, F.lit(" came back after ")).otherwise(F.lit(" went round for "))
    stopped = F.when(F.col("times") == 1, F.lit("once")).otherwise(counted(F.col("times"), "time"))
    return F.concat(F.array_join(chain, " → "), way, hops, F.lit(", stopped "), stopped)
