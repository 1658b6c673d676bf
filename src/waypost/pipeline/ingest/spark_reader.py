"""Segments line by line, with Spark's own readers and writers.

Lines that are no events are counted, and kept aside in the lake.
"""

import operator
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from waypost.pipeline.ingest.results import Damage, Key, Read, Taken
from waypost.pipeline.journal.sources import SegmentFile
from waypost.pipeline.lake.events import CORRUPT, LINE, from_lines
from waypost.pipeline.lake.lake import Change, Lake
from waypost.pipeline.lake.manifest import Manifest

SET_ASIDE = "corrupt"


def take_lines(change: Change, segments: list[SegmentFile]) -> Taken:
    """Add what `change` does not know yet of `segments` to its events."""
    lines = _lines(change.lake.spark, segments)
    lines = lines.where(_committed(lines, segments))
    watch = Observation()
    is_commit = F.col("kind") == "commit"
    watched = lines.observe(
        watch,
        F.count_if(~_whole()).alias("corrupt"),
        F.count_if(_whole() & ~is_commit).alias("whole"),
        F.coalesce(F.sum(F.when(is_commit, F.col("count"))), F.lit(0)).alias("told"),
    )
    taken = watched.where(_whole() & ~is_commit & _unread(segments, change.draft))
    days = change.append_events(from_lines(taken))
    seen = watch.get
    damaged = _look_closer(lines) if seen["corrupt"] or seen["told"] != seen["whole"] else {}
    _set_aside(
        change.lake,
        [
            one
            for one in segments
            if (found := damaged.get((one.relay, one.first_seq))) and found.corrupt
        ],
    )
    return Taken(days, _read(change, days), damaged)


def _lines(spark: SparkSession, segments: list[SegmentFile]) -> DataFrame:
    """Every line of `segments`, parsed, with the segment it is from."""
    paths: dict[str, list[str]] = {}
    for segment in segments:
        paths.setdefault(segment.relay, []).append(segment.path)
    reader = spark.read.schema(LINE).option("columnNameOfCorruptRecord", CORRUPT)
    first_seq = F.regexp_extract(F.col("_metadata.file_name"), r"^(\d+)\.", 1).cast("bigint")
    of_each = [
        reader.json(files).select(F.lit(relay).alias("relay"), first_seq.alias("segment"), "*")
        for relay, files in paths.items()
    ]
    return reduce(DataFrame.unionByName, of_each)


def _committed(lines: DataFrame, segments: list[SegmentFile]) -> Column:
    """Leaves out what follows the last commit of open segments: it may yet be cut off."""
    still_open = [one for one in segments if not one.sealed]
    if not still_open:
        return F.lit(True)
    in_open = reduce(operator.or_, [_of(one) for one in still_open])
    commits = lines.where(in_open & (F.col("kind") == "commit"))
    last = {
        (row.relay, row.segment): row.seq
        for row in commits.groupBy("relay", "segment").agg(F.max("seq").alias("seq")).collect()
    }
    committed = F.lit(True)
    for one in still_open:
        until = last.get((one.relay, one.first_seq), 0)
        committed &= ~_of(one) | F.coalesce(F.col("seq") <= until, F.lit(False))
    return committed


def _of(segment: SegmentFile) -> Column:
    return (F.col("relay") == segment.relay) & (F.col("segment") == segment.first_seq)


def _whole() -> Column:
    """Whether a line is an event that can be placed."""
    return (
        F.col(CORRUPT).isNull()
        & F.col("kind").isNotNull()
        & F.col("seq").isNotNull()
        & F.col("at_us").isNotNull()
    )


def _unread(segments: list[SegmentFile], manifest: Manifest) -> Column:
    """Leaves out what a stream has read of a segment before it was sealed."""
    unread = F.lit(True)
    for one in segments:
        known = manifest.relays.get(one.relay, {}).get(one.first_seq)
        if known is not None:
            unread &= ~(_of(one) & (F.col("seq") <= known.last_seq))
    return unread


def _look_closer(lines: DataFrame) -> dict[Key, Damage]:
    """Corrupt lines and missing events of the segments that have any."""
    whole, is_commit = _whole(), F.col("kind") == "commit"
    counts = lines.groupBy("relay", "segment").agg(
        F.count_if(~whole).alias("corrupt"),
        F.count_if(whole & ~is_commit).alias("events"),
        F.coalesce(F.sum(F.when(is_commit, F.col("count"))), F.lit(0)).alias("told"),
    )
    return {
        (row.relay, row.segment): Damage(row.corrupt, max(0, row.told - row.events))
        for row in counts.collect()
        if row.corrupt or row.told != row.events
    }


def _read(change: Change, days: list[str]) -> dict[Key, Read]:
    added = change.read_batch(change.draft.version, days).groupBy("relay", "segment")
    counts = added.agg(F.max("seq").alias("last_seq"), F.count(F.lit(1)).alias("events"))
    return {(row.relay, row.segment): Read(row.last_seq, row.events) for row in counts.collect()}


def _set_aside(lake: Lake, segments: list[SegmentFile]) -> None:
    """Keep the lines that could not be read, with where they are from."""
    for one in segments:
        text = lake.spark.read.text(one.path)
        parsed = F.from_json("value", LINE, {"columnNameOfCorruptRecord": CORRUPT})
        lines = text.select("value", parsed.alias("line")).select("value", "line.*")
        bad = lines.where(~_whole()).select(
            F.lit(one.relay).alias("relay"),
            F.lit(one.first_seq).alias("segment"),
            F.col("value").alias("line"),
        )
        (
            bad.write.partitionBy("relay", "segment")
            .mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .parquet(f"{lake.path}/{SET_ASIDE}")
        )
