"""Arrivals: the events the replay decides again, each with its recorded decision.

    old_reason     why it was rejected; empty if it was accepted
    limited        rejected whole, by the sender's rate limit or for its fan-out
    not_replayed   rejected for a reason the replay does not decide again: access rules, the disk
    endpoint       the endpoint that decides; empty if there was none, or if it is not known

An event that counts many rejections of a flood is not an arrival: the times of the single
rejections are not known.

A message to another partition is two arrivals: one at the relay of its sender, which counts it and
has no endpoint for it, and one with `origin` at the relay that stores it, which does not count it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import ARRIVALS, is_answer

FORWARDED = "forwarded"
LIMITED = "rate_limited"
TOO_WIDE = "fanout_exceeded"
NOT_REPLAYED = ("access_denied", "storage_full", "mailbox_unavailable", "partition_unavailable")

# The columns that the stages read.
STAGE_COLUMNS = (
    "relay",
    "seq",
    "at_ms",
    "sender",
    "network",
    "endpoint",
    "part",
    "parts",
    "publish",
    "old_reason",
    "limited",
    "size",
    "tier",
    "ttl_ms",
    "due_ms",
    "deferred",
    "hop_count",
    "max_hops",
    "calls",
    "cycle",
    "kept",
)
# The columns of a decision, beside `new_reason`. `OUTPUT_COLUMNS` are carried through the stages
# only if every decision is written to a file.
DECISION_COLUMNS = ("relay", "seq", "at_ms", "sender", "endpoint", "tier", "old_reason")
OUTPUT_COLUMNS = ("id", "subject")


def arrivals_of(events: DataFrame) -> DataFrame:
    """Return the arrivals of `events`. Those that are `limited` have no endpoint yet."""
    return with_arrival_columns(events.where(is_arrival()))


def replayable_arrivals(events: DataFrame) -> DataFrame:
    """Return the arrivals of `events` that the replay decides again."""
    return arrivals_of(events).where(~F.col("not_replayed"))


def is_arrival() -> Column:
    """Return whether an event is an arrival, and not a count of many."""
    kinds = F.col("kind").isin(*ARRIVALS, FORWARDED)
    return kinds & (F.coalesce("since_us", F.lit(0)) == 0)


def contacts_elsewhere(events: DataFrame) -> DataFrame:
    """Return who wrote to whom in other partitions, with the columns of restored pairs."""
    forwarded = events.where((F.col("kind") == FORWARDED) & ~F.col("subject").rlike("[*>]"))
    at_ms = F.expr("at_us div 1000").alias("at_ms")
    return forwarded.select("relay", "seq", at_ms, "sender", F.col("subject").alias("endpoint"))


def with_arrival_columns(events: DataFrame) -> DataFrame:
    """Add the columns of arrivals to `events`."""
    elsewhere = F.col("kind") == FORWARDED
    events = events.withColumns(
        {
            "endpoint": F.when(elsewhere, F.lit("")).otherwise(F.col("endpoint")),
            "parts": F.when(elsewhere, F.lit(1)).otherwise(F.col("parts")),
        }
    )
    rows = events.withColumns(
        {
            "at_ms": F.expr("at_us div 1000"),
            "old_reason": F.when(F.col("kind") == "rejected", F.col("reason")).otherwise(""),
            "publish": F.col("id"),
            "network": F.coalesce("network", F.lit("")),
            "due_ms": F.expr("coalesce(due_us, 0) div 1000"),
            "deferred": F.coalesce("deferred", F.lit(False)),
            "calls": F.col("call_budget_remaining"),
            "cycle": _cycle("endpoint"),
            "kept": F.coalesce("kept", F.lit(True)),
        }
    )
    return rows.withColumns(
        {
            "limited": F.col("old_reason").isin(LIMITED, TOO_WIDE),
            "not_replayed": F.col("old_reason").isin(*NOT_REPLAYED),
        }
    )


def resolve_endpoints(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Fill in the endpoint of arrivals that are `limited`.

    A literal subject resolves to its endpoint if that is `known` (relay, name). The matches of a
    pattern were not recorded, so its endpoint stays empty.
    """
    found = known.select("relay", F.col("name").alias("subject"), F.lit(True).alias("found"))
    joined = rows.join(F.broadcast(found), on=["relay", "subject"], how="left")
    resolved = F.col("limited") & F.col("found")
    return joined.withColumns(
        {
            "endpoint": F.when(resolved, F.col("subject")).otherwise(F.col("endpoint")),
            "cycle": F.when(resolved, _cycle("subject")).otherwise(F.col("cycle")),
        }
    ).drop("found")


def overdrawn(max_hops: Column) -> Column:
    """Return `policy.budgets.overdrawn` as a native expression, under a limit of `max_hops`."""
    return (
        (F.col("hop_count") >= max_hops)
        | F.col("cycle")
        | (F.greatest("at_ms", "due_ms") > F.col("ttl_ms"))
        | (F.col("calls") <= 0)
    )


def _cycle(endpoint: str) -> Column:
    """Return whether a delivery to the column `endpoint` would close a loop. An answer does not."""
    in_chain = F.array_contains(F.col("ancestor_chain"), F.col(endpoint))
    return F.coalesce(in_chain & ~is_answer(), F.lit(False))
