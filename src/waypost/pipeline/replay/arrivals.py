"""Arrivals as the replay sees them: each line that was judged, with what was decided about it.

    old_reason   why it was refused; empty if it was accepted
    kept         refused for what is not replayed: access rules, a full disk
    limited      refused by its sender's rate limit, and so before its endpoints were looked up
    goal         the endpoint it is judged at; empty if nobody was there, or nobody knows

Lines that stand for many refusals of a flood are none: when each of them happened is not known.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import ARRIVALS

LIMITED = "rate_limited"
KEPT = ("access_denied", "storage_full")

# What the stages judge by, and what is told of the result; `id` and `subject` are carried along
# only if rows are to be written out.
JUDGED = (
    *("relay", "seq", "at_ms", "sender", "goal", "part", "publish", "old_reason", "limited"),
    *("size", "tier", "ttl_ms", "deferred", "hop_count", "max_hops", "calls", "cycle"),
)
TOLD = ("relay", "seq", "at_ms", "sender", "goal", "tier", "old_reason")
SHOWN = ("id", "subject")


def arrivals_of(events: DataFrame) -> DataFrame:
    """The arrivals among `events`. A refusal by rate limit has no goal yet: see `with_goals`."""
    return described(events.where(is_arrival()))


def is_arrival() -> Column:
    """Whether an event is an arrival, and one by itself."""
    return F.col("kind").isin(*ARRIVALS) & (F.coalesce("since_us", F.lit(0)) == 0)


def described(events: DataFrame) -> DataFrame:
    """`events` with the further columns of arrivals."""
    rows = events.withColumns(
        {
            "at_ms": F.expr("at_us div 1000"),
            "old_reason": F.when(F.col("kind") == "rejected", F.col("reason")).otherwise(""),
            "goal": F.col("endpoint"),
            "publish": F.col("id"),
            "deferred": F.coalesce("deferred", F.lit(False)),
            "calls": F.col("call_budget_remaining"),
            "cycle": F.coalesce(in_chain(F.col("endpoint")), F.lit(False)),
        }
    )
    return rows.withColumns(
        {
            "limited": F.col("old_reason") == LIMITED,
            "kept": F.col("old_reason").isin(*KEPT),
        }
    )


def in_chain(endpoint: Column) -> Column:
    """Whether a delivery to `endpoint` would close a loop."""
    return F.array_contains(F.col("ancestor_chain"), endpoint)


def with_goals(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Where refusals by rate limit would have gone: a literal subject goes to its endpoint, if
    `known` (relay, subject) tells that there ever was one. A pattern's fan-out is not known."""
    there = F.broadcast(known.select("relay", "subject", F.lit(True).alias("there")))
    joined = rows.join(there, on=["relay", "subject"], how="left")
    found = F.col("limited") & F.col("there")
    return joined.withColumns(
        {
            "goal": F.when(found, F.col("subject")).otherwise(F.col("endpoint")),
            "cycle": F.when(found, F.coalesce(in_chain(F.col("subject")), F.lit(False))).otherwise(
                F.col("cycle")
            ),
        }
    ).drop("there")


def overdrawn(hops: Column) -> Column:
    """`policy.budgets.overdrawn`, natively, with `hops` for the most hops allowed."""
    return (
        (F.col("hop_count") >= hops)
        | F.col("cycle")
        | (F.col("at_ms") > F.col("ttl_ms"))
        | (F.col("calls") <= 0)
    )
