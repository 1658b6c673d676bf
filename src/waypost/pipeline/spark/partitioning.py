"""Chooses the number of shuffle partitions: as few as the data needs, because each one adds
overhead to every task."""

import os

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

INITIAL_PARTITIONS = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
FIT_SHUFFLES = "spark.waypost.fitShuffles"
"""Spark setting: whether Waypost chooses the number."""

_BYTES_PER_PARTITION = 20_000_000
"""Of Parquet files of `events`. What a query shuffles of them is about as large, uncompressed."""

_PER_CORE_MIN = 4
_PER_CORE_MAX = 32


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks a session runs at once; over Connect, the cores of this machine."""
    return (os.cpu_count() or 1) if is_remote() else spark.sparkContext.defaultParallelism


def fit_shuffles(spark: SparkSession, event_bytes: int) -> None:
    """Set the number of shuffle partitions for a job over files of `events`, if Waypost may."""
    if spark.conf.get(FIT_SHUFFLES, "") == "true":
        cores = cores_of(spark)
        needed = min(event_bytes // _BYTES_PER_PARTITION, _PER_CORE_MAX * cores)
        spark.conf.set(INITIAL_PARTITIONS, str(max(_PER_CORE_MIN * cores, needed)))
