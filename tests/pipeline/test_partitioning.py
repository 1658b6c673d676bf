"""Into how many parts shuffles are cut."""

import pytest
from pyspark.sql import SparkSession

from waypost.pipeline.spark.partitioning import FITTED, PARTS, fit_shuffles


@pytest.mark.parametrize(("events", "parts"), [(0, 8), (20_000_000, 20), (1_000_000_000_000, 64)])
def test_as_many_parts_as_there_is_to_move_and_two_cores_can_use(
    spark: SparkSession, events: int, parts: int
) -> None:
    fit_shuffles(spark, events)
    assert spark.conf.get(PARTS) == str(parts)


def test_what_somebody_asked_for_stays(spark: SparkSession) -> None:
    fit_shuffles(spark, 0)
    spark.conf.set(FITTED, "false")
    try:
        fit_shuffles(spark, 20_000_000)
        assert spark.conf.get(PARTS) == "8"
    finally:
        spark.conf.set(FITTED, "true")
