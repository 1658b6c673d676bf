"""Whom other settings cannot touch, found without replaying anything.

With each arrival the relay wrote down the numbers it judged by. As long as every decision about a
key (a sender, or an endpoint) would have been the same, its state would have been the same too,
and so those numbers. So a key is settled if each of its arrivals, judged under the replayed
settings by the recorded numbers, comes out as it did: by induction, nothing changes. One that
comes out otherwise, or whose numbers were not recorded and cannot be bounded, makes its key loud.

These are hash aggregates over the lake as it is: no sorting, no Python.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.events import ARRIVALS
from waypost.pipeline.replay.arrivals import described, is_arrival, overdrawn
from waypost.pipeline.replay.eras import Eras
from waypost.policy.reserved import RELAY
from waypost.policy.verdicts import Reason

_NO_NUMBERS = ("failed", "breaker", "evicted", "redriven", "endpoint")
_HUGE = 1 << 62


def sender_facts(events: DataFrame, eras: Eras) -> DataFrame:
    """By relay and sender: `loud`, how many `lines` there are and for which reasons, and how many
    refusals were only `counted`."""
    rows = eras.attach(described(events).where(F.col("kind").isin(*ARRIVALS)))
    rows = rows.withColumns({"limit": eras.limit(), "alone": is_arrival()})
    limited, over = F.col("limited"), F.col("rate_count") >= F.col("limit")
    judged = F.col("alone") & ~F.col("kept")
    free = ~F.col("rate_on") | (F.col("sender") == RELAY)
    differs = (
        F.when(free, limited)
        .when(F.col("rate_exact"), limited != over)
        .when(F.col("rate_bounded"), limited | over)
        .otherwise(limited)
    )
    reasons = (
        F.count_if(F.col("alone") & (F.col("old_reason") == reason.value)).alias(reason.value)
        for reason in Reason
    )
    facts = rows.groupBy("relay", "sender").agg(
        F.max(judged & differs).alias("differs"),
        F.max(judged & ~free & ~F.col("rate_bounded")).alias("unknown"),
        F.min("limit").alias("limit"),
        F.count_if(judged & (F.col("part") == 0)).alias("publishes"),
        F.count_if("alone").alias("lines"),
        F.sum(F.when(~F.col("alone"), F.col("count")).otherwise(0)).alias("counted"),
        *reasons,
    )
    # Nobody reaches a limit that is higher than everything they ever sent.
    many = F.col("unknown") & (F.col("publishes") > F.col("limit"))
    return facts.withColumn("loud", F.col("differs") | many)


def endpoint_facts(events: DataFrame, eras: Eras) -> DataFrame:
    """By relay and endpoint: `loud`, `redriven` (lines), for all endpoints ever heard of."""
    of_kind = F.col("kind")
    arrival = is_arrival() & (F.col("endpoint") != "") & ~F.col("kept")
    rows = eras.attach(described(events).where(arrival | of_kind.isin(*_NO_NUMBERS)))
    failure = (of_kind == "failed") & (F.col("via") == "handler")
    lower = F.col("qos_on") & ~F.col("quota_known")
    facts = rows.groupBy("relay", "endpoint").agg(
        F.max(arrival & (expected_reason() != F.col("old_reason"))).alias("differs"),
        F.max(of_kind.isin("breaker", "evicted")).alias("eventful"),
        F.count_if(of_kind == "redriven").alias("redriven"),
        F.count_if(failure).alias("failures"),
        F.min(F.when(~F.col("breaker_known"), F.col("threshold"))).alias("failures_max"),
        ((F.max("depth") + 1) * F.max("size")).alias("bytes_at_most"),
        F.min(
            F.least(
                F.when(F.col("qos_on") & ~F.col("inbox_known"), F.col("inbox_max")),
                F.when(lower, F.least("bytes_1", "bytes_2", "bytes_3")),
            )
        ).alias("bytes_max"),
    )
    loud = (
        F.col("differs")
        | F.col("eventful")
        | (F.col("failures") >= F.coalesce("failures_max", F.lit(_HUGE)))
        | (F.coalesce("bytes_at_most", F.lit(0)) > F.coalesce("bytes_max", F.lit(_HUGE)))
    )
    return facts.select("relay", "endpoint", "redriven", loud.alias("loud"))


def expected_reason() -> Column:
    """What comes of an arrival by its recorded numbers, if breaker and byte cap let it pass."""
    tier, size = F.col("tier"), F.col("size")
    counts = (F.col("count_1"), F.col("count_2"), F.col("count_3"))
    held = (F.col("bytes_1"), F.col("bytes_2"), F.col("bytes_3"))
    count_max = F.when(F.col("tier_known"), _by_tier(tier, counts)).otherwise(F.least(*counts))
    bytes_max = F.when(F.col("tier_known"), _by_tier(tier, held)).otherwise(F.least(*held))
    recorded = (F.col("quota_count") >= count_max) | (F.col("quota_bytes") + size > bytes_max)
    over = F.when(F.col("quota_known"), recorded).otherwise(F.col("depth") >= count_max)
    # A refusal by quota is only understood if the tier it was judged in still holds.
    unclear = (F.col("old_reason") == Reason.QUOTA_EXCEEDED.value) & ~F.col("tier_known")
    return (
        F.when(unclear, F.lit("unclear"))
        .when(F.col("depth") >= F.coalesce("cap", F.lit(_HUGE)), Reason.BACKPRESSURE.value)
        .when(F.col("qos_on") & over, Reason.QUOTA_EXCEEDED.value)
        .when(overdrawn(effective_hops()), Reason.BUDGET_EXCEEDED.value)
        .otherwise("")
    )


def effective_hops() -> Column:
    """The most hops of a budget: a budget that had the relay's gets the replayed relay's."""
    own, new, was = F.col("max_hops"), F.col("hops"), F.col("hops_recorded")
    return F.when(new == was, own).when(own == was, new).otherwise(F.least(own, new))


def _by_tier(tier: Column, limits: tuple[Column, Column, Column]) -> Column:
    return F.when(tier == 3, limits[2]).when(tier == 2, limits[1]).otherwise(limits[0])
