"""`latency`: one row for each mailbox and hour: how long what arrived then took.

Percentiles are exact, not estimates. Waiting ends with the first lease, the whole with the
acknowledgement; messages that have not come so far yet count in neither.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.tables.expressions import hour_of

NAME = "latency"

SCHEMA = columns(
    """
    day date, relay string, endpoint string, hour timestamp, messages bigint,
    wait_p50_ms double, wait_p95_ms double, wait_p99_ms double,
    total_p50_ms double, total_p95_ms double, total_p99_ms double
    """
)


_SHARES = {50: 0.5, 95: 0.95, 99: 0.99}


def build(messages: DataFrame) -> DataFrame:
    """Hours of `messages`."""
    hours = messages.withColumn("hour", hour_of(F.col("arrived_at")))
    found = in_order(hours, ("day", "relay", "endpoint", "hour"))
    return found.withColumns(percentiles()).select(*SCHEMA.names)


def in_order(messages: DataFrame, group: tuple[str, ...]) -> DataFrame:
    """How many `messages`, and all their `wait` and `total` in ms, in order, by `group`.

    Spark's own `percentile` counts each value in a map of its own; to sort numbers is quicker.
    """
    return messages.groupBy(*group).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sort_array(F.collect_list("wait_ms")).alias("wait"),
        F.sort_array(F.collect_list("total_ms")).alias("total"),
    )


def percentiles() -> dict[str, Column]:
    """`wait_pNN_ms` and `total_pNN_ms`, of the arrays `wait` and `total`, which are in order."""
    return {
        f"{what}_p{percent}_ms": _percentile(F.col(what), share)
        for what in ("wait", "total")
        for percent, share in _SHARES.items()
    }


def _percentile(values: Column, share: float) -> Column:
    """Interpolated between the two neighbours of the place where it would be; null of nothing."""
    place = (F.size(values) - 1) * F.lit(share)
    low, high = F.floor(place), F.ceil(place)
    lower, higher = F.get(values, low.cast("int")), F.get(values, high.cast("int"))
    return lower + (higher - lower) * (place - low)
