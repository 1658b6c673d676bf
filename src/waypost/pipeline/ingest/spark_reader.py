"""Reads segments line by line, with Spark's own readers and writers.

Lines that are no events are counted, and kept in the lake's `corrupt` directory, except those
that are too long to be read.
"""

import operator
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from waypost.pipeline.files import local_path
from waypost.pipeline.ingest.results import (
    IngestedBatch,
    NewEvents,
    SegmentDamage,
    SegmentKey,
)
from waypost.pipeline.journal.segments import SegmentFile, count_overlong_lines
from waypost.pipeline.lake.events import AT_US_END, CORRUPT, LINE, event_count, from_lines
from waypost.pipeline.lake.lake import Change, Lake
from waypost.pipeline.lake.manifest import EventBatch, Manifest

CORRUPT_LINES = "corrupt"


def ingest_with_spark(change: Change, segments: list[SegmentFile]) -> IngestedBatch:
    """Add the new events of `segments` to `change`."""
    lines = _lines(change.lake.spark, segments)
    lines = lines.where(_committed(lines, segments))
    counts = Observation()
    is_commit = F.col("kind") == "commit"
    observed = lines.observe(
        counts,
        F.count_if(~_is_valid()).alias("corrupt"),
        _valid_events().alias("events"),
        _committed_events().alias("committed"),
    )
    new = observed.where(_is_valid() & ~is_commit & _is_new(segments, change.draft))
    batch = change.append_events(from_lines(new))
    seen = counts.get
    damaged = _find_damage(lines) if seen["corrupt"] or seen["committed"] != seen["events"] else {}
    _keep_corrupt_lines(
        change.lake,
        [
            one
            for one in segments
            if (found := damaged.get((one.relay, one.first_seq))) and found.corrupt
        ],
    )
    for one in segments:
        skipped = count_overlong_lines(local_path(one.path)) if one.path.startswith("file:") else 0
        if skipped:
            found = damaged.get((one.relay, one.first_seq), SegmentDamage(0, 0))
            damaged[one.relay, one.first_seq] = found._replace(corrupt=found.corrupt + skipped)
    return IngestedBatch(batch.days, _count_new_events(change, batch), damaged)


def _lines(spark: SparkSession, segments: list[SegmentFile]) -> DataFrame:
    """Return every line of `segments`, parsed, with its relay and segment."""
    paths: dict[str, list[str]] = {}
    for segment in segments:
        paths.setdefault(segment.relay, []).append(segment.path)
    reader = spark.read.schema(LINE).option("columnNameOfCorruptRecord", CORRUPT)
    first_seq = F.regexp_extract(F.col("_metadata.file_name"), r"^(\d+)\.", 1).cast("bigint")
    by_relay = [
        reader.json(files).select(F.lit(relay).alias("relay"), first_seq.alias("segment"), "*")
        for relay, files in paths.items()
    ]
    return reduce(DataFrame.unionByName, by_relay)


def _committed(lines: DataFrame, segments: list[SegmentFile]) -> Column:
    """Exclude what follows the last commit of an open segment: recovery may truncate it."""
    still_open = [one for one in segments if not one.sealed]
    if not still_open:
        return F.lit(True)
    in_open = reduce(operator.or_, [_is_in(one) for one in still_open])
    commits = lines.where(in_open & (F.col("kind") == "commit"))
    last = {
        (row.relay, row.segment): row.seq
        for row in commits.groupBy("relay", "segment").agg(F.max("seq").alias("seq")).collect()
    }
    committed = F.lit(True)
    for one in still_open:
        until = last.get((one.relay, one.first_seq), 0)
        committed &= ~_is_in(one) | F.coalesce(F.col("seq") <= until, F.lit(False))
    return committed


def _is_in(segment: SegmentFile) -> Column:
    return (F.col("relay") == segment.relay) & (F.col("segment") == segment.first_seq)


def _is_valid() -> Column:
    """Return whether a line is an event with kind, seq and a possible time."""
    valid = (
        F.col(CORRUPT).isNull()
        & F.col("kind").isNotNull()
        & F.col("seq").isNotNull()
        & F.col("at_us").between(0, AT_US_END - 1)
    )
    return F.coalesce(valid, F.lit(False))


def _is_new(segments: list[SegmentFile], manifest: Manifest) -> Column:
    """Exclude events that a stream ingested before the segment was sealed."""
    new = F.lit(True)
    for one in segments:
        known = manifest.relays.get(one.relay, {}).get(one.first_seq)
        if known is not None:
            new &= ~(_is_in(one) & (F.col("seq") <= known.last_seq))
    return new


def _valid_events() -> Column:
    """Return the number of events in the valid lines of a group."""
    of_line = F.when(_is_valid() & (F.col("kind") != "commit"), event_count())
    return F.coalesce(F.sum(of_line), F.lit(0))


def _committed_events() -> Column:
    """Return the number of events that the commit lines of a group count."""
    return F.coalesce(F.sum(F.when(F.col("kind") == "commit", F.col("count"))), F.lit(0))


def _find_damage(lines: DataFrame) -> dict[SegmentKey, SegmentDamage]:
    """Return corrupt lines and missing events of the segments that have any."""
    counts = lines.groupBy("relay", "segment").agg(
        F.count_if(~_is_valid()).alias("corrupt"),
        _valid_events().alias("events"),
        _committed_events().alias("committed"),
    )
    return {
        (row.relay, row.segment): SegmentDamage(row.corrupt, max(0, row.committed - row.events))
        for row in counts.collect()
        if row.corrupt or row.committed != row.events
    }


def _count_new_events(change: Change, batch: EventBatch) -> dict[SegmentKey, NewEvents]:
    added = change.read_batch(batch).groupBy("relay", "segment")
    counts = added.agg(F.max("seq").alias("last_seq"), F.count(F.lit(1)).alias("events"))
    return {
        (row.relay, row.segment): NewEvents(row.last_seq, row.events) for row in counts.collect()
    }


def _keep_corrupt_lines(lake: Lake, segments: list[SegmentFile]) -> None:
    """Write the unreadable lines of `segments` to the lake, with relay and segment."""
    for one in segments:
        text = lake.spark.read.text(one.path)
        parsed = F.from_json("value", LINE, {"columnNameOfCorruptRecord": CORRUPT})
        lines = text.select("value", parsed.alias("line")).select("value", "line.*")
        bad = lines.where(~_is_valid()).select(
            F.lit(one.relay).alias("relay"),
            F.lit(one.first_seq).alias("segment"),
            F.col("value").alias("line"),
        )
        (
            bad.write.partitionBy("relay", "segment")
            .mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .parquet(f"{lake.path}/{CORRUPT_LINES}")
        )
