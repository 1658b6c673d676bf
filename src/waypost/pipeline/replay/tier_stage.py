"""The second stage: how well sender and recipient know each other, by who wrote to whom last.

Native throughout. A pair's rows, in both directions, lie in one partition in order of `seq`; what
the recipient last sent to the sender is the newest instant of the other direction before it.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from waypost.policy.reserved_names import ANONYMOUS, RELAY
from waypost.policy.tiers import Tier


def with_tiers(rows: DataFrame, others: DataFrame) -> DataFrame:
    """`rows` with the tier they would have had; `others` are further arrivals to judge it by.

    Both are arrivals with a goal that passed their sender's limit; `others` may be pairs that were
    restored. `rows` have `qos_on` and `window_ms` of their regime; where tiers are off, the
    recorded one stays.
    """
    judged = rows.withColumn("asked", F.lit(True))
    both = judged.unionByName(others.withColumn("asked", F.lit(False)), allowMissingColumns=True)
    sender, goal = F.col("sender"), F.col("goal")
    line = (
        Window.partitionBy("relay", F.least(sender, goal), F.greatest(sender, goal))
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, -1)
    )

    def last_from(one: Column) -> Column:
        return F.max(F.when(sender == one, F.col("at_ms"))).over(line)

    first_ms, second_ms = last_from(F.least(sender, goal)), last_from(F.greatest(sender, goal))
    received = F.when(goal == F.least(sender, goal), first_ms).otherwise(second_ms)
    seen = both.withColumn("received_ms", received).where("asked")
    tier = F.when(F.col("qos_on"), standing()).otherwise(F.col("tier"))
    return seen.withColumn("tier", tier.cast("int")).drop("received_ms", "asked")


def changed_tiers(rows: DataFrame, others: DataFrame) -> DataFrame:
    """Of `rows`, as for `with_tiers`, those whose tier would not be the recorded one: `relay`,
    `seq`, `goal`, `new_tier`, and whether the recorded one is `tier_known` in their regime."""
    narrow = rows.select(
        *("relay", "seq", "at_ms", "sender", "goal", "tier", "qos_on", "window_ms", "tier_known"),
        F.col("tier").alias("recorded"),
    )
    found = with_tiers(narrow, others).where(F.col("tier") != F.col("recorded"))
    return found.select("relay", "seq", "goal", F.col("tier").alias("new_tier"), "tier_known")


def restored_pairs(events: DataFrame) -> DataFrame:
    """Who wrote to whom as the relay was told by hand, in the shape of arrivals."""
    told = events.where(F.col("kind") == "seen")
    return told.select(
        "relay", "seq", F.col("seen_ms").alias("at_ms"), "sender", F.col("endpoint").alias("goal")
    )


def standing() -> Column:
    """`policy.tiers.standing`, of columns `sender`, `received_ms`, `at_ms` and `window_ms`."""
    fresh = F.col("received_ms") >= F.col("at_ms") - F.col("window_ms")
    return (
        F.when(F.col("sender") == RELAY, int(Tier.ACTIVE))
        .when(F.col("sender") == ANONYMOUS, int(Tier.UNKNOWN))
        .when(F.col("received_ms").isNull(), int(Tier.UNKNOWN))
        .when(fresh, int(Tier.ACTIVE))
        .otherwise(int(Tier.ACKNOWLEDGED))
    )
