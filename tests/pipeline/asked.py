"""Counts the queries that Spark was asked."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


class Asked:
    """The number of `queries`, once the block has ended."""

    queries = 0


@contextmanager
def counted_queries(spark: SparkSession) -> Iterator[Asked]:
    """Count the queries of a block, as Spark's own status store lists them."""
    asked, before = Asked(), _total(spark)
    yield asked
    asked.queries = _total(spark) - before


def _total(spark: SparkSession) -> int:
    assert spark._jvm is not None
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return int(spark._jsparkSession.sharedState().statusStore().executionsCount())
