"""Whom other settings cannot touch, found without replaying anything.

With each arrival the relay wrote down the numbers it judged by. As long as every decision about a
key (a sender, or an endpoint) would have been the same, its state would have been the same too,
and so those numbers. So a key is settled if each of its arrivals, judged under the replayed
settings by the recorded numbers, comes out as it did: by induction, nothing changes. One that
comes out otherwise, or whose numbers were not recorded and cannot be bounded, makes its key loud.

One look at the lake gives facts about every pair, and those of senders and endpoints are sums of
them: hash aggregates, no sorting, no Python.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.events import ARRIVALS
from waypost.pipeline.replay.arrivals import described, is_arrival
from waypost.pipeline.replay.eras import Eras
from waypost.policy.reserved import RELAY
from waypost.policy.verdicts import Reason

_NO_NUMBERS = ("failed", "breaker", "evicted", "redriven", "endpoint")
_HUGE = 1 << 62
COUNTS = ("lines", "counted", *(reason.value for reason in Reason))


def pair_facts(events: DataFrame, eras: Eras) -> DataFrame:
    """By relay, sender and endpoint, what the two functions below add up."""
    of_kind = F.col("kind")
    rows = eras.attach(described(events).where(of_kind.isin(*ARRIVALS, *_NO_NUMBERS)))
    rows = rows.withColumns({"limit": eras.limit(), "alone": is_arrival()})
    return rows.groupBy("relay", "sender", "endpoint").agg(*_of_senders(), *_of_endpoints())


def _of_senders() -> list[Column]:
    limited, over = F.col("limited"), F.col("rate_count") >= F.col("limit")
    alone = F.col("alone")
    judged = alone & ~F.col("kept")
    free = ~F.col("rate_on") | (F.col("sender") == RELAY)
    differs = (
        F.when(free, limited)
        .when(F.col("rate_exact"), limited != over)
        .when(F.col("rate_bounded"), limited | over)
        .otherwise(limited)
    )
    reasons = (
        F.count_if(alone & (F.col("old_reason") == reason.value)).alias(reason.value)
        for reason in Reason
    )
    return [
        F.max(judged & differs).alias("sender_differs"),
        F.max(judged & ~free & ~F.col("rate_bounded")).alias("unknown"),
        F.min("limit").alias("limit"),
        F.count_if(judged & (F.col("part") == 0)).alias("publishes"),
        F.count_if(alone).alias("lines"),
        F.sum(F.when(F.col("kind").isin(*ARRIVALS) & ~alone, F.col("count")).otherwise(0)).alias(
            "counted"
        ),
        *reasons,
    ]


def _of_endpoints() -> list[Column]:
    of_kind = F.col("kind")
    at_endpoint = judged_at_endpoint()
    return [
        F.max(at_endpoint & (expected_reason() != F.col("old_reason"))).alias("differs"),
        F.max(of_kind == "breaker").alias("broke"),
        F.max(of_kind == "evicted").alias("evicted"),
        F.count_if(of_kind == "redriven").alias("redriven"),
        F.count_if((of_kind == "failed") & (F.col("via") == "handler")).alias("failures"),
        F.min("threshold").alias("threshold"),
        F.min(F.when(~F.col("breaker_known"), F.col("threshold"))).alias("new_threshold"),
        F.count_if(at_endpoint).alias("arrivals"),
        F.max(F.when(at_endpoint, F.col("depth"))).alias("depth_most"),
        F.max(F.when(at_endpoint, F.col("size"))).alias("size_most"),
        F.max(F.when(at_endpoint, F.col("seq"))).alias("last_seq"),
        F.min(bytes_unproven()).alias("bytes_max"),
    ]


def sender_facts(pairs: DataFrame) -> DataFrame:
    """By relay and sender: `loud`, how many `lines` there are and for which reasons, and how many
    refusals were only `counted`."""
    facts = (
        pairs.where(F.col("sender").isNotNull())
        .groupBy("relay", "sender")
        .agg(
            F.max("sender_differs").alias("differs"),
            F.max("unknown").alias("unknown"),
            F.min("limit").alias("limit"),
            *(F.sum(name).alias(name) for name in ("publishes", *COUNTS)),
        )
    )
    # Nobody reaches a limit that is higher than everything they ever sent.
    many = F.col("unknown") & (F.col("publishes") > F.col("limit"))
    return facts.withColumn("loud", F.col("differs") | many)


def endpoint_facts(pairs: DataFrame) -> DataFrame:
    """By relay and endpoint, for all that were ever heard of: `loud`, and `whole` if the breaker
    may have a say, so that no moment can be looked at alone; `redriven` (lines), the number of
    `arrivals`, and `size_most` and `last_seq` of them."""
    facts = (
        pairs.where(F.col("endpoint") != "")
        .groupBy("relay", "endpoint")
        .agg(
            *(F.max(name).alias(name) for name in ("differs", "broke", "evicted")),
            *(F.max(name).alias(name) for name in ("depth_most", "size_most", "last_seq")),
            *(F.sum(name).alias(name) for name in ("arrivals", "redriven", "failures")),
            *(F.min(name).alias(name) for name in ("threshold", "new_threshold", "bytes_max")),
        )
    )
    fails = F.col("failures") >= F.coalesce("new_threshold", F.lit(_HUGE))
    bytes_most = (F.col("depth_most") + 1) * F.col("size_most")
    fills = F.coalesce(bytes_most > F.col("bytes_max"), F.lit(False))
    differs = F.coalesce("differs", F.lit(False))
    return facts.select(
        *("relay", "endpoint", "arrivals", "redriven", "size_most", "last_seq"),
        (differs | F.col("broke") | F.col("evicted") | fails | fills).alias("loud"),
        (F.col("broke") | (F.col("failures") >= F.col("threshold"))).alias("whole"),
    )


def judged_at_endpoint() -> Column:
    """Whether an event is an arrival that an endpoint's own limits were asked about."""
    reached = ~F.col("kept") & ~F.col("limited")
    return is_arrival() & (F.col("endpoint") != "") & reached


def bytes_unproven() -> Column:
    """The bytes that an inbox, or a sender in it, must not reach: null where numbers prove it."""
    lower = F.col("qos_on") & ~F.col("quota_known")
    return F.least(
        F.when(F.col("qos_on") & ~F.col("inbox_known"), F.col("inbox_max")),
        F.when(lower, F.least("bytes_1", "bytes_2", "bytes_3")),
    )


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
        .when(_overdrawn(), Reason.BUDGET_EXCEEDED.value)
        .otherwise("")
    )


def _overdrawn() -> Column:
    """What a budget allows changes with the hops alone, and then only refusals by hops are sure."""
    same = F.col("hops") == F.col("hops_recorded")
    was = F.col("old_reason") == Reason.BUDGET_EXCEEDED.value
    return F.when(same, was).otherwise(F.col("hop_count") >= effective_hops())


def effective_hops() -> Column:
    """The most hops of a budget: a budget that had the relay's gets the replayed relay's."""
    own, new, was = F.col("max_hops"), F.col("hops"), F.col("hops_recorded")
    return F.when(new == was, own).when(own == was, new).otherwise(F.least(own, new))


def _by_tier(tier: Column, limits: tuple[Column, Column, Column]) -> Column:
    return F.when(tier == 3, limits[2]).when(tier == 2, limits[1]).otherwise(limits[0])
