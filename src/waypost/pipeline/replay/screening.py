"""Whom other settings cannot touch, found without replaying anything.

With each arrival the relay wrote down the numbers it judged by. As long as every decision about a
key (a sender, or an endpoint) would have been the same, its state would have been the same too,
and so those numbers. So a key is settled if each of its arrivals, judged under the replayed
settings by the recorded numbers, comes out as it did: by induction, nothing changes. One that
comes out otherwise, or whose numbers were not recorded and cannot be bounded, makes its key loud.

One look at the lake gives facts about every pair, and those of senders and endpoints are sums of
them: hash aggregates over the lake as it is, no sorting, no Python.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import ARRIVALS
from waypost.pipeline.replay.arrivals import described, is_arrival
from waypost.pipeline.replay.settings_timeline import Eras
from waypost.policy.breakers import CircuitState
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import RELAY

_NO_NUMBERS = ("failed", "breaker", "evicted", "redriven", "endpoint")
_HUGE = 1 << 62
COUNTS = ("lines", "counted", *(reason.value for reason in Reason))


def pair_facts(events: DataFrame, eras: Eras) -> DataFrame:
    """By relay, sender and endpoint: what `sender_facts` and `endpoint_facts` add up."""
    of_kind = F.col("kind")
    rows = eras.attach(described(events).where(of_kind.isin(*ARRIVALS, *_NO_NUMBERS)))
    rows = rows.withColumns({"limit": eras.limit(), "alone": is_arrival()})
    return rows.groupBy("relay", "sender", "endpoint").agg(*_of_senders(), *_of_endpoints())


def sender_facts(pairs: DataFrame) -> DataFrame:
    """By relay and sender: `loud`, how many `lines` there are and for which reasons, and how many
    refusals were only `counted`."""
    facts = (
        pairs.where(F.col("sender").isNotNull())
        .groupBy("relay", "sender")
        .agg(
            F.max("rate_differs").alias("differs"),
            F.max("rate_unknown").alias("unknown"),
            F.min("limit").alias("limit"),
            *(F.sum(name).alias(name) for name in ("publishes", *COUNTS)),
        )
    )
    # Nobody reaches a limit that is higher than everything they ever sent.
    many = F.col("unknown") & (F.col("publishes") > F.col("limit"))
    return facts.withColumn("loud", F.col("differs") | many)


def endpoint_facts(pairs: DataFrame) -> DataFrame:
    """By relay and endpoint: `loud`, `redriven` (lines), for all endpoints ever heard of."""
    facts = (
        pairs.where(F.col("endpoint") != "")
        .groupBy("relay", "endpoint")
        .agg(
            *(F.max(name).alias(name) for name in ("differs", "evicts", "breaks", "breaker_new")),
            *(F.max(name).alias(name) for name in ("depth_most", "size_most")),
            *(F.sum(name).alias(name) for name in ("redriven", "failures")),
            *(F.min(name).alias(name) for name in ("threshold", "bytes_max")),
        )
    )
    # Failures add up over all eras, so one of another breaker concerns the others, too.
    opens = F.col("breaks") | (F.col("failures") >= F.col("threshold"))
    fills = (F.col("depth_most") + 1) * F.col("size_most") > F.col("bytes_max")
    loud = (
        F.coalesce("differs", F.lit(False))
        | F.col("evicts")
        | (F.col("breaker_new") & opens)
        | F.coalesce(fills, F.lit(False))
    )
    return facts.select("relay", "endpoint", "redriven", loud.alias("loud"))


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
    only_counted = F.col("kind").isin(*ARRIVALS) & ~alone
    return [
        F.max(judged & differs).alias("rate_differs"),
        F.max(judged & ~free & ~F.col("rate_bounded")).alias("rate_unknown"),
        F.min("limit").alias("limit"),
        F.count_if(judged & (F.col("part") == 0)).alias("publishes"),
        F.count_if(alone).alias("lines"),
        F.sum(F.when(only_counted, F.col("count")).otherwise(0)).alias("counted"),
        *(
            F.count_if(alone & (F.col("old_reason") == reason.value)).alias(reason.value)
            for reason in Reason
        ),
    ]


def _of_endpoints() -> list[Column]:
    of_kind = F.col("kind")
    judged = F.col("alone") & ~F.col("kept") & ~F.col("limited")
    lower = F.col("qos_on") & ~F.col("quota_known")
    bytes_max = F.least(
        F.when(F.col("qos_on") & ~F.col("inbox_known"), F.col("inbox_max")),
        F.when(lower, F.least("bytes_1", "bytes_2", "bytes_3")),
    )
    bytes_max = F.when(judged & ~_weighed(), bytes_max)
    return [
        F.max(judged & (expected_reason() != F.col("old_reason"))).alias("differs"),
        F.max((of_kind == "evicted") & ~F.col("inbox_same")).alias("evicts"),
        F.max(of_kind == "breaker").alias("breaks"),
        F.max(~F.col("breaker_known")).alias("breaker_new"),
        F.count_if((of_kind == "failed") & (F.col("via") == "handler")).alias("failures"),
        F.min("threshold").alias("threshold"),
        F.count_if(of_kind == "redriven").alias("redriven"),
        F.max("depth").alias("depth_most"),
        F.max("size").alias("size_most"),
        F.min(bytes_max).alias("bytes_max"),
    ]


def expected_reason() -> Column:
    """What comes of an arrival by its recorded numbers.

    Where the mailbox was not weighed, the byte cap is taken to let it pass.
    """
    tier, size = F.col("tier"), F.col("size")
    counts = (F.col("count_1"), F.col("count_2"), F.col("count_3"))
    held = (F.col("bytes_1"), F.col("bytes_2"), F.col("bytes_3"))
    count_max = F.when(F.col("tier_known"), _by_tier(tier, counts)).otherwise(F.least(*counts))
    bytes_max = F.when(F.col("tier_known"), _by_tier(tier, held)).otherwise(F.least(*held))
    recorded = (F.col("quota_count") >= count_max) | (F.col("quota_bytes") + size > bytes_max)
    at_most = (F.col("depth") >= count_max) | (_weight() > bytes_max)
    over = F.when(F.col("quota_known"), recorded).otherwise(at_most)
    # A refusal by quota is only understood if the tier it was judged in still holds.
    unclear = (F.col("old_reason") == Reason.QUOTA_EXCEEDED.value) & ~F.col("tier_known")
    full = F.col("qos_on") & (_weight() > F.col("inbox_max"))
    no_room = F.col("inbox_same") & (F.col("old_reason") == Reason.BACKPRESSURE.value)
    turned_away = F.col("inbox_rejects") | (size > F.col("inbox_max")) | no_room
    return (
        F.when(unclear, F.lit("unclear"))
        .when(F.col("depth") >= F.coalesce("cap", F.lit(_HUGE)), Reason.BACKPRESSURE.value)
        .when(full & turned_away, Reason.BACKPRESSURE.value)
        .when(full & ~F.col("inbox_same"), F.lit("unclear"))  # other mail is evicted
        .when(F.col("qos_on") & over, Reason.QUOTA_EXCEEDED.value)
        .when(F.col("breaker_known") & _broken(), Reason.CIRCUIT_OPEN.value)
        .when(_overdrawn(), Reason.BUDGET_EXCEEDED.value)
        .otherwise("")
    )


def _weighed() -> Column:
    """Whether it is known what the mailbox held; older journals do not tell."""
    return (F.col("depth") == 0) | (F.coalesce("depth_bytes", F.lit(0)) > 0)


def _weight() -> Column:
    """What the mailbox would weigh with the arrival; null if unknown."""
    return F.when(_weighed(), F.coalesce("depth_bytes", F.lit(0)) + F.col("size"))


def _broken() -> Column:
    """Whether the breaker, in its recorded state, lets an arrival not pass."""
    waits = F.col("old_reason") == Reason.CIRCUIT_OPEN.value  # for the outcome of another probe
    half_open = F.col("breaker") == CircuitState.HALF_OPEN.value
    return (F.col("breaker") == CircuitState.OPEN.value) | (half_open & waits)


def _overdrawn() -> Column:
    """Whether the budget lets an arrival not pass, which nothing but the hops can change: where
    they are as they were, so is the answer. Where not, only refusals by hops are understood."""
    same = F.col("hops") == F.col("hops_recorded")
    was = F.col("old_reason") == Reason.BUDGET_EXCEEDED.value
    return F.when(same, was).otherwise(F.col("hop_count") >= _effective_hops())


def _effective_hops() -> Column:
    """The most hops of a budget: a budget that had the relay's gets the replayed relay's."""
    own, new, was = F.col("max_hops"), F.col("hops"), F.col("hops_recorded")
    return F.when(new == was, own).when(own == was, new).otherwise(F.least(own, new))


def _by_tier(tier: Column, limits: tuple[Column, Column, Column]) -> Column:
    return F.when(tier == 3, limits[2]).when(tier == 2, limits[1]).otherwise(limits[0])
