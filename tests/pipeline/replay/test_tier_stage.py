"""Tiers as a native expression against the function of the policy."""

from itertools import product

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from waypost.pipeline.replay import tier_stage
from waypost.policy.tiers import sender_tier

NOW = 10_000


def test_the_native_tier_equals_that_of_the_policy(spark: SparkSession) -> None:
    senders = ("agent.a", "_relay", "_anonymous")
    received = (None, 0, NOW - 501, NOW - 500, NOW - 499, NOW)
    cases = [(*case, NOW, 500) for case in product(senders, received)]
    rows = spark.createDataFrame(
        cases, "sender string, received_ms bigint, at_ms bigint, window_ms bigint"
    )
    found = rows.select(
        F.struct(*rows.columns).alias("case"), tier_stage.sender_tier().alias("tier")
    )
    for row in found.collect():
        sender, received_ms, at_ms, window_ms = row.case
        assert row.tier == sender_tier(sender, at_ms, received_ms, at_ms, window_ms), row.case
