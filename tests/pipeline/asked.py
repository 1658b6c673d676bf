"""Counts the queries that Spark was asked, and the rows it read for them."""

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


class Read:
    """The number of `rows` read from files, once the block has ended."""

    rows = 0


@contextmanager
def counted_rows(spark: SparkSession) -> Iterator[Read]:
    """Count the rows that the stages of a block read, as Spark's own status store lists them."""
    read, before = Read(), set(_rows_by_stage(spark))
    yield read
    read.rows = sum(rows for stage, rows in _rows_by_stage(spark).items() if stage not in before)


def _rows_by_stage(spark: SparkSession) -> dict[int, int]:
    assert spark._jvm is not None
    context, gateway = spark.sparkContext._jsc.sc(), spark.sparkContext._gateway
    context.listenerBus().waitUntilEmpty()
    no_quantiles = gateway.new_array(gateway.jvm.double, 0)
    none = gateway.jvm.java.util.ArrayList()
    stages = context.statusStore().stageList(None, False, False, no_quantiles, none)
    listed = [stages.apply(at) for at in range(stages.size())]
    return {stage.stageId(): stage.inputRecords() for stage in listed}


def _total(spark: SparkSession) -> int:
    """Return the number of the newest query: Spark forgets old ones once they are a thousand."""
    assert spark._jvm is not None
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    listed = spark._jsparkSession.sharedState().statusStore().executionsList()
    return 0 if listed.isEmpty() else int(listed.last().executionId()) + 1
