"""Reads tables for queries: times in milliseconds, and sums."""

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.registry import TABLES


def table(lake: Lake, name: str) -> DataFrame:
    """Return all days of a table; no rows if it was never built."""
    return lake.read(name, TABLES[name])


def rows_of_inboxes(lake: Lake, rows: DataFrame, inboxes: list[Row]) -> DataFrame:
    """Return the rows of some inboxes."""
    names = lake.spark.createDataFrame(
        [(one["relay"], one["endpoint"]) for one in inboxes],
        columns("relay string, endpoint string"),
    )
    return rows.join(F.broadcast(names), on=["relay", "endpoint"], how="left_semi")


def ms(column: str) -> Column:
    """Return a timestamp as milliseconds since the epoch, independent of time zones."""
    return F.unix_millis(F.col(column))


def total(column: str) -> Column:
    """Return the sum of a column under its own name, 0 without rows."""
    return F.coalesce(F.sum(F.col(column)), F.lit(0)).alias(column)
