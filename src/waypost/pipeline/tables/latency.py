"""`latency`: one row for each mailbox and hour, with the waiting times of its arrivals.

Percentiles are exact, not estimates. `wait` ends with the first lease, `total` with the ack;
messages without a lease or ack do not count there.
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
    """Return the mailboxes and hours of `messages`."""
    hours = messages.withColumn("hour", hour_of(F.col("arrived_at")))
    found = sorted_times(hours, ("day", "relay", "endpoint", "hour"))
    return found.withColumns(percentiles()).select(*SCHEMA.names)


def sorted_times(messages: DataFrame, group: tuple[str, ...]) -> DataFrame:
    """Return the number of `messages`, and sorted arrays of `wait` and `total` in ms, by `group`.

    Spark's own `percentile` counts values in a map for each group; sorting is faster.
    """
    return messages.groupBy(*group).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sort_array(F.collect_list("wait_ms")).alias("wait"),
        F.sort_array(F.collect_list("total_ms")).alias("total"),
    )


def percentiles() -> dict[str, Column]:
    """Return `wait_pNN_ms` and `total_pNN_ms` of the sorted arrays `wait` and `total`."""
    return {
        f"{what}_p{percent}_ms": _percentile(F.col(what), share)
        for what in ("wait", "total")
        for percent, share in _SHARES.items()
    }


def _percentile(values: Column, share: float) -> Column:
    """Interpolate between the two nearest values; null for an empty array."""
    index = (F.size(values) - 1) * F.lit(share)
    low, high = F.floor(index), F.ceil(index)
    lower, higher = F.get(values, low.cast("int")), F.get(values, high.cast("int"))
    return lower + (higher - lower) * (index - low)
