"""Stage 2, by pair: computes tiers from who last wrote to whom.

All native. The rows of a pair, in both directions, are in one partition and in order of `seq`. The
recipient's last message to the sender is the latest earlier row of the other direction.
"""

from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from waypost.pipeline.replay.arrivals import contacts_elsewhere
from waypost.pipeline.replay.keys import KEY, NO_KEYS, named
from waypost.policy.reserved_names import ANONYMOUS, RELAY
from waypost.policy.tiers import Tier

PAIR = ["relay", "sender", "endpoint"]
NO_PAIRS = pa.table({name: pa.array([], pa.string()) for name in PAIR})
_BROADCAST_MAX = 500_000
"""Broadcast-join threshold, in rows."""


@dataclass(frozen=True)
class TierResult:
    """The result of stage 2: `rows` of `tier_stage`, and the table of `tiers_by_endpoint`."""

    rows: DataFrame | None
    by_endpoint: pa.Table

    def replace(self, rows: DataFrame) -> DataFrame:
        """Replace the tiers of `rows` that changed."""
        if self.rows is None or not self.by_endpoint.num_rows:
            return rows
        new_tiers = self.rows.select("relay", "seq", "new_tier")
        if pc.sum(self.by_endpoint["arrivals"]).as_py() <= _BROADCAST_MAX:
            new_tiers = F.broadcast(new_tiers)
        joined = rows.join(new_tiers, on=["relay", "seq"], how="left")
        return joined.withColumn("tier", F.coalesce("new_tier", "tier")).drop("new_tier")

    def endpoints(self) -> pa.Table:
        """Return the keys of endpoints where a tier changed that screening relied on."""
        return self.by_endpoint.filter(self.by_endpoint["tier_known"]).select(KEY)


NO_NEW_TIERS = TierResult(None, NO_KEYS.append_column("tier_known", pa.array([], pa.bool_())))


def tier_stage(rows: DataFrame, restored: DataFrame) -> DataFrame:
    """Return the rows whose tier differs from the recorded one.

    Both arguments are those of `with_tiers`. The result has `relay`, `seq`, `endpoint`, `new_tier`,
    and `tier_known`: the recorded tier would still hold if the same arrivals had passed.
    """
    narrow = rows.select(
        "relay",
        "seq",
        "at_ms",
        "sender",
        "endpoint",
        "tier",
        "qos_on",
        "window_ms",
        "tier_known",
        F.col("tier").alias("recorded"),
    )
    changed = with_tiers(narrow, restored).where(F.col("tier") != F.col("recorded"))
    return changed.select("relay", "seq", "endpoint", F.col("tier").alias("new_tier"), "tier_known")


def with_tiers(rows: DataFrame, restored: DataFrame) -> DataFrame:
    """Replace the tier of `rows` by the replayed one; where tiers are off, keep the recorded one.

    `rows` are all arrivals within their sender's rate limit that have an endpoint, with `qos_on`
    and `window_ms` of their settings period. `restored` pairs count as earlier arrivals.
    """
    arrivals = rows.withColumn("is_arrival", F.lit(True))
    earlier = restored.withColumn("is_arrival", F.lit(False))
    both = arrivals.unionByName(earlier, allowMissingColumns=True)
    sender, endpoint = F.col("sender"), F.col("endpoint")
    before = (
        Window.partitionBy("relay", F.least(sender, endpoint), F.greatest(sender, endpoint))
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, -1)
    )

    def last_from(name: Column) -> Column:
        return F.max(F.when(sender == name, F.col("at_ms"))).over(before)

    first, second = F.least(sender, endpoint), F.greatest(sender, endpoint)
    received_ms = F.when(endpoint == first, last_from(first)).otherwise(last_from(second))
    tier = F.when(F.col("qos_on"), sender_tier()).otherwise(F.col("tier"))
    with_received = both.withColumn("received_ms", received_ms).where("is_arrival")
    return with_received.withColumn("tier", tier.cast("int")).drop("received_ms", "is_arrival")


def restored_pairs(events: DataFrame) -> DataFrame:
    """Return the pairs that were restored into the relay, or are known from messages to other
    partitions, with the columns of arrivals."""
    restored = events.where(F.col("kind") == "seen")
    seen_ms = F.col("seen_ms").alias("at_ms")
    pairs = restored.select("relay", "seq", seen_ms, "sender", "endpoint")
    return pairs.unionByName(contacts_elsewhere(events))


def tiers_by_endpoint(tiers: DataFrame) -> DataFrame:
    """Count the rows of `tier_stage` by endpoint (relay, name) as `arrivals`.

    `tier_known`: whether it is true for any of them.
    """
    by_endpoint = tiers.groupBy("relay", F.col("endpoint").alias("name"))
    return by_endpoint.agg(
        F.count(F.lit(1)).alias("arrivals"), F.bool_or("tier_known").alias("tier_known")
    )


def sender_tier() -> Column:
    """Return `policy.tiers.sender_tier` as a native expression.

    Reads the columns `sender`, `received_ms`, `at_ms` and `window_ms`.
    """
    recent = F.col("received_ms") >= F.col("at_ms") - F.col("window_ms")
    return (
        F.when(F.col("sender") == RELAY, int(Tier.ACTIVE))
        .when(F.col("sender") == ANONYMOUS, int(Tier.UNKNOWN))
        .when(F.col("received_ms").isNull(), int(Tier.UNKNOWN))
        .when(recent, int(Tier.ACTIVE))
        .otherwise(int(Tier.ACKNOWLEDGED))
    )


# Pairs whose rate-limit outcome changed, and the tiers this may affect


def replies(changed: pa.Table, pairs: DataFrame) -> DataFrame:
    """Return the `changed` pairs that got a reply according to `pairs`, the facts of screening."""
    wanted = F.broadcast(pairs.sparkSession.createDataFrame(_reversed(changed)))
    found = pairs.join(wanted, on=PAIR, how="left_semi")
    return found.select(
        "relay", F.col("endpoint").alias("sender"), F.col("sender").alias("endpoint")
    )


def uncertain_pairs(changed: pa.Table, replied: pa.Table) -> pa.Table:
    """Return the `changed` pairs whose recorded tier may no longer hold.

    A message that passes now has no recorded tier. A message that no longer passes matters only to
    the tier of replies to it, and flooders get none. `replied` are the collected `replies`.
    """
    gained = changed.filter(changed["gained"]).select(PAIR)
    return pa.concat_tables([gained, replied]).group_by(PAIR).aggregate([])


def endpoints_of(pairs: pa.Table) -> pa.Table:
    """Return the keys of the endpoints of `pairs`, with duplicates."""
    return pairs.select(["relay", "endpoint"]).rename_columns(KEY)


def senders_of(pairs: pa.Table) -> pa.Table:
    """Return the keys of the senders of `pairs`, with duplicates."""
    return pairs.select(["relay", "sender"]).rename_columns(KEY)


def of_pairs(rows: DataFrame, pairs: pa.Table) -> DataFrame:
    """Return the `rows` between the sender and the endpoint of one of `pairs`, either way."""
    both_ways = pa.concat_tables([pairs, _reversed(pairs)]).group_by(PAIR).aggregate([])
    rows = named(rows, "sender", pc.unique(both_ways["sender"]).to_pylist())
    wanted = F.broadcast(rows.sparkSession.createDataFrame(both_ways))
    return rows.join(wanted, on=PAIR, how="left_semi")


def _reversed(pairs: pa.Table) -> pa.Table:
    return pairs.select(["relay", "endpoint", "sender"]).rename_columns(PAIR)
