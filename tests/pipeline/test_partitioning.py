"""The number of shuffle partitions."""

import pytest
from pyspark.sql import SparkSession

from waypost.pipeline.spark.partitioning import FIT_SHUFFLES, INITIAL_PARTITIONS, fit_shuffles


@pytest.mark.parametrize(("event_bytes", "parts"), [(0, 8), (400_000_000, 20), (10**12, 64)])
def test_the_number_of_partitions_follows_bytes_and_cores(
    spark: SparkSession, event_bytes: int, parts: int
) -> None:
    fit_shuffles(spark, event_bytes)
    assert spark.conf.get(INITIAL_PARTITIONS) == str(parts)


def test_a_number_set_by_the_user_stays(spark: SparkSession) -> None:
    fit_shuffles(spark, 0)
    spark.conf.set(FIT_SHUFFLES, "false")
    try:
        fit_shuffles(spark, 400_000_000)
        assert spark.conf.get(INITIAL_PARTITIONS) == "8"
    finally:
        spark.conf.set(FIT_SHUFFLES, "true")
