"""Tables of a lake as questions need them: times as milliseconds, and only the largest."""

from pyspark.sql import Column, DataFrame, Observation, Row
from pyspark.sql import functions as F

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.registry import TABLES


def table(lake: Lake, name: str) -> DataFrame:
    """All days of a table; no rows if it was never built."""
    return lake.read(name, TABLES[name])


def only(lake: Lake, rows: DataFrame, inboxes: list[Row]) -> DataFrame:
    """The rows of some inboxes."""
    names = lake.spark.createDataFrame(
        [(one["relay"], one["endpoint"]) for one in inboxes],
        columns("relay string, endpoint string"),
    )
    return rows.join(F.broadcast(names), on=["relay", "endpoint"], how="left_semi")


def ms(column: str) -> Column:
    """A timestamp as milliseconds since the epoch, which no time zone can bend."""
    return F.unix_millis(F.col(column))


def total(column: str) -> Column:
    """The sum of a column, 0 if there are no rows, under the column's name."""
    return F.coalesce(F.sum(F.col(column)), F.lit(0)).alias(column)


def largest(rows: DataFrame, most: int, *order: Column) -> tuple[list[Row], int]:
    """The first `most` rows in `order`, and how many rows there are besides."""
    seen = Observation()
    counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
    found = counted.orderBy(*order).limit(most).collect()
    if len(found) < most:
        return found, 0
    return found, int(seen.get["rows"]) - len(found)
