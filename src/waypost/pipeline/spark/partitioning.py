"""Chooses the number of shuffle partitions: as few as the data needs, because each one adds
overhead to every task."""

from pyspark.sql import SparkSession

INITIAL_PARTITIONS = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
FIT_SHUFFLES = "spark.waypost.fitShuffles"
"""Spark setting: whether Waypost chooses the number."""

_EVENTS_PER_PARTITION = 1_000_000
_PER_CORE_MIN = 4
_PER_CORE_MAX = 32


def fit_shuffles(spark: SparkSession, events: int) -> None:
    """Set the number of shuffle partitions for a job over `events` events, if Waypost may."""
    if spark.conf.get(FIT_SHUFFLES, "") == "true":
        cores = spark.sparkContext.defaultParallelism
        needed = min(events // _EVENTS_PER_PARTITION, _PER_CORE_MAX * cores)
        spark.conf.set(INITIAL_PARTITIONS, str(max(_PER_CORE_MIN * cores, needed)))
