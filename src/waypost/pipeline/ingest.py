"""`ingest`: the segments of any number of relays become `events`, each line exactly once.

What was taken in is in the manifest, which is written with the events in one commit: a run that
is killed leaves the lake as it was, and one that is repeated finds nothing to do. Of a segment
that is still open, what is committed is taken in, and the rest the next time.
"""

import operator
from collections.abc import Iterable
from functools import reduce

import msgspec
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.events import CORRUPT, LINE, from_lines
from waypost.pipeline.journals import JournalPlace, SegmentFile, list_segments
from waypost.pipeline.lake.lake import Change, Lake
from waypost.pipeline.lake.manifest import Manifest, Segment

SET_ASIDE = "corrupt"


class Ingested(msgspec.Struct, kw_only=True):
    """What a run took in. `missing`: events that commit lines tell of and nobody can read."""

    relays: int = 0
    segments: int = 0
    events: int = 0
    corrupt: int = 0
    missing: int = 0
    bytes: int = 0
    days: list[str] = []


def ingest(lake: Lake, places: Iterable[JournalPlace]) -> Ingested:
    """Take in what is new at `places`."""
    change = lake.begin()
    found = [segment for place in places for segment in list_segments(lake.spark, place)]
    new = [segment for segment in found if _is_new(segment, change.draft)]
    if not new:
        return Ingested()
    lines = _lines(lake.spark, new)
    lines = lines.where(_committed(lines, new))
    watch = Observation()
    is_commit = F.col("kind") == "commit"
    watched = lines.observe(
        watch,
        F.count_if(~_whole()).alias("corrupt"),
        F.count_if(_whole() & ~is_commit).alias("whole"),
        F.coalesce(F.sum(F.when(is_commit, F.col("count"))), F.lit(0)).alias("told"),
    )
    taken = watched.where(_whole() & ~is_commit & _unread(new, change.draft))
    days = change.append_events(from_lines(taken))
    seen = watch.get
    damaged = _look_closer(lines) if seen["corrupt"] or seen["told"] != seen["whole"] else {}
    summary = Ingested(
        relays=len({segment.relay for segment in new}),
        segments=len(new),
        bytes=sum(segment.bytes for segment in new),
        days=days,
    )
    _note(change, new, damaged, summary)
    if summary.corrupt:
        _set_aside(lake, [one for one in new if damaged.get((one.relay, one.first_seq))])
    change.commit()
    return summary


def _is_new(segment: SegmentFile, manifest: Manifest) -> bool:
    known = manifest.relays.get(segment.relay, {}).get(segment.first_seq)
    if known is None:
        return True
    if not known.sealed:
        return segment.sealed or segment.bytes > known.bytes
    if known.bytes == segment.bytes:
        return False
    raise JournalUnusable(
        f"{segment.path} is not the segment {segment.first_seq} of relay {segment.relay!r} that"
        " this lake already holds: if it is of another relay, name it with --journal NAME=DIR"
    )


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


def _look_closer(lines: DataFrame) -> dict[tuple[str, int], tuple[int, int]]:
    """Corrupt lines and missing events of the segments that have any."""
    whole, is_commit = _whole(), F.col("kind") == "commit"
    counts = lines.groupBy("relay", "segment").agg(
        F.count_if(~whole).alias("corrupt"),
        F.count_if(whole & ~is_commit).alias("events"),
        F.coalesce(F.sum(F.when(is_commit, F.col("count"))), F.lit(0)).alias("told"),
    )
    return {
        (row.relay, row.segment): (row.corrupt, max(0, row.told - row.events))
        for row in counts.collect()
        if row.corrupt or row.told != row.events
    }


def _note(
    change: Change,
    new: list[SegmentFile],
    damaged: dict[tuple[str, int], tuple[int, int]],
    summary: Ingested,
) -> None:
    """Write into the draft what was taken in of each segment."""
    batch = change.draft.version
    added = change.read_batch(batch, summary.days).groupBy("relay", "segment")
    read = {
        (row.relay, row.segment): (row.last, row.events)
        for row in added.agg(
            F.max("seq").alias("last"), F.count(F.lit(1)).alias("events")
        ).collect()
    }
    for one in new:
        segments = change.draft.relays.setdefault(one.relay, {})
        before = segments.get(one.first_seq, Segment(0, 0, 0))
        last_seq, events = read.get((one.relay, one.first_seq), (before.last_seq, 0))
        corrupt, missing = damaged.get((one.relay, one.first_seq), (0, 0))
        segments[one.first_seq] = Segment(
            last_seq, one.bytes, before.events + events, corrupt, missing, one.sealed
        )
        summary.events += events
        summary.corrupt += corrupt
        summary.missing += missing


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
