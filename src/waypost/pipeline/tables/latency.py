"""`latency`: one row for each mailbox and hour: how long what arrived then took.

Percentiles are exact, not estimates. Waiting ends with the first lease, the whole with the
acknowledgement; messages that have not come so far yet count in neither.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.schemas import columns
from waypost.pipeline.tables.conditions import hour_of

NAME = "latency"

SCHEMA = columns(
    """
    day date, relay string, endpoint string, hour timestamp, messages bigint,
    wait_p50_ms double, wait_p95_ms double, wait_p99_ms double,
    total_p50_ms double, total_p95_ms double, total_p99_ms double
    """
)


def build(messages: DataFrame) -> DataFrame:
    """Hours of `messages`."""
    hours = messages.withColumn("hour", hour_of(F.col("arrived_at")))
    return percentiles(hours, ("day", "relay", "endpoint", "hour")).select(*SCHEMA.names)


def percentiles(messages: DataFrame, group: tuple[str, ...]) -> DataFrame:
    """`messages`, and `wait_pNN_ms` and `total_pNN_ms` for 50, 95 and 99, by `group`."""
    shares = F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99))
    found = messages.groupBy(*group).agg(
        F.count(F.lit(1)).alias("messages"),
        F.percentile("wait_ms", shares).alias("wait"),
        F.percentile("total_ms", shares).alias("total"),
    )
    return found.select(
        *group,
        "messages",
        *(
            F.col(what)[position].alias(f"{what}_p{percent}_ms")
            for what in ("wait", "total")
            for position, percent in enumerate((50, 95, 99))
        ),
    )
