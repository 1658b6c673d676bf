"""Into how many parts rows are cut that move between tasks: each part costs every task something,
so as few as hold what there is."""

from pyspark.sql import SparkSession

PARTS = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
FITTED = "spark.waypost.fitShuffles"
_EVENTS_EACH = 1_000_000
_PER_CORE = 4


def fit_shuffles(spark: SparkSession, events: int) -> None:
    """Be ready for a job over so many events, in a session that leaves this to Waypost."""
    if spark.conf.get(FITTED, "") == "true":
        least = _PER_CORE * spark.sparkContext.defaultParallelism
        spark.conf.set(PARTS, str(max(least, events // _EVENTS_EACH)))
