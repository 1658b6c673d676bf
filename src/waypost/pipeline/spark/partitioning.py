"""Into how many parts rows are cut that move between tasks: each part costs every task something,
so as few as hold what there is."""

from pyspark.sql import SparkSession

PARTS = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
FITTED = "spark.waypost.fitShuffles"
_EVENTS_EACH = 1_000_000
_LEAST_PER_CORE, _MOST_PER_CORE = 4, 32


def fit_shuffles(spark: SparkSession, events: int) -> None:
    """Be ready for a job over so many events, in a session that leaves this to Waypost."""
    if spark.conf.get(FITTED, "") == "true":
        cores = spark.sparkContext.defaultParallelism
        most = min(events // _EVENTS_EACH, _MOST_PER_CORE * cores)
        spark.conf.set(PARTS, str(max(_LEAST_PER_CORE * cores, most)))
