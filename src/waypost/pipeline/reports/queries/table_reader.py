"""Reads tables for queries: times in milliseconds, sums, and the largest rows only."""

from pyspark.sql import Column, DataFrame, Observation, Row
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


def largest(rows: DataFrame, most: int, *order: Column) -> tuple[list[Row], int]:
    """Return the first `most` rows in `order`, and the number of all other rows."""
    seen = Observation()
    counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
    found = counted.orderBy(*order).limit(most).collect()
    if len(found) < most:
        return found, 0
    return found, int(seen.get["rows"]) - len(found)
