"""`simulate --events`: fills a lake with copies of one relay's journal, as many relays.

Rule 1  A copy is the journal that the same relay would write under another name, whole days later.
        Times, and the times within ids, shift together; nothing else changes, so every decision
        is still correct under the same settings.
Rule 2  Ids of different copies differ, except those that senders chose.
Rule 3  The number of events is exact: the last journal is cut short, like that of a relay that is
        still running.
Rule 4  A relay that the lake already holds is an error, and nothing is added.
"""

from functools import reduce

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.journal.segments import list_segments
from waypost.pipeline.journal.sources import JournalSource
from waypost.pipeline.lake.delta import update_all_logs
from waypost.pipeline.lake.events import CORRUPT, EVENTS, LINE, from_lines
from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.lake.manifest import IngestedSegment

SPREAD_DAYS = 28
"""Days over which the starts of the copies are spread, in turn."""

RELAYS_MAX = 1 << 19
"""Copies that the four digits of an id that number them can count."""

_DAY_MS = 86_400_000
_ULID = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
_BASE32_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUV"
_ULID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIMES_US = ("at_us", "since_us", "until_us", "not_before_us", "due_us")
_TIMES_MS = ("ttl_ms", "seen_ms")
_IDS = ("id", "thread", "parent")


class SynthesisSummary(msgspec.Struct, kw_only=True):
    """The result: `relays` copies of a journal of `block` events, the last one cut short."""

    relays: int
    block: int
    events: int
    days: list[str] = []
    notes: list[str] = []
    """Why Delta tables are not up to date."""


def synthesize(lake: Lake, journal: str, events: int, name: str) -> SynthesisSummary:
    """Add `events` events to the lake: copies of the sealed journal at `journal`.

    The relays are named `name-00001` and so on. Raises `JournalUnusable` if there is no journal,
    `LakeUnusable` if the lake holds one of the relays or there would be too many.
    """
    change = lake.begin()
    files = list_segments(lake.spark, JournalSource(name, journal))
    block = _block(lake, [one.path for one in files]).persist()
    try:
        segments = _segments(block, {one.first_seq: one.bytes for one in files})
        size = sum(one.events for one in segments.values())
        copies = -(-events // size)
        names = [f"{name}-{copy + 1:05d}" for copy in range(copies)]
        _check(lake, names)
        batch = change.append_events(_copies(block, name, copies, events - (copies - 1) * size))
    finally:
        block.unpersist()
    for relay in names:
        change.draft.relays[relay] = segments
    change.draft.relays[names[-1]] = _cut(segments, events - (copies - 1) * size)
    change.commit()
    notes = update_all_logs(lake.path, lake.manifest)
    return SynthesisSummary(relays=copies, block=size, events=events, days=batch.days, notes=notes)


def _check(lake: Lake, names: list[str]) -> None:
    if len(names) > RELAYS_MAX:
        raise LakeUnusable(
            f"too many relays: {len(names):,}, at most {RELAYS_MAX:,} copies have distinct ids;"
            " simulate more messages, so that each copy is longer"
        )
    known = [relay for relay in names if relay in lake.manifest.relays]
    if known:
        raise LakeUnusable(
            f"the lake already holds relay {known[0]!r}, and nothing was added: use another seed or"
            " another lake"
        )


def _block(lake: Lake, paths: list[str]) -> DataFrame:
    """Return the events of a journal."""
    first_seq = F.regexp_extract(F.col("_metadata.file_name"), r"^(\d+)\.", 1).cast("bigint")
    reader = lake.spark.read.schema(LINE).option("columnNameOfCorruptRecord", CORRUPT)
    lines = reader.json(paths).select(F.lit("").alias("relay"), first_seq.alias("segment"), "*")
    return from_lines(lines.where(F.col("kind") != "commit"))


def _segments(block: DataFrame, sizes: dict[int, int]) -> dict[int, IngestedSegment]:
    counts = block.groupBy("segment").agg(
        F.max("seq").alias("last_seq"), F.count(F.lit(1)).alias("events")
    )
    return {
        row.segment: IngestedSegment(row.last_seq, sizes[row.segment], row.events)
        for row in sorted(counts.collect(), key=lambda row: row.segment)
    }


def _cut(segments: dict[int, IngestedSegment], last_seq: int) -> dict[int, IngestedSegment]:
    """Return the segments of a journal that ends with event `last_seq`."""
    return {
        first: msgspec.structs.replace(
            one,
            last_seq=min(one.last_seq, last_seq),
            events=min(one.events, last_seq - first + 1),
        )
        for first, one in segments.items()
        if first <= last_seq
    }


def _copies(block: DataFrame, name: str, copies: int, last_seq: int) -> DataFrame:
    """Return all copies of `block`, the last one up to `last_seq`.

    Copies that begin on the same day are made by the same tasks, which then write few days each.
    """
    by_day = [
        _on_day(block, name, day, F.sequence(F.lit(day), F.lit(copies - 1), F.lit(SPREAD_DAYS)))
        for day in range(min(copies, SPREAD_DAYS))
    ]
    included = (F.col("copy") < copies - 1) | (F.col("seq") <= last_seq)
    return reduce(DataFrame.unionByName, by_day).where(included).select(*EVENTS.fieldNames())


def _on_day(block: DataFrame, name: str, day: int, copies: Column) -> DataFrame:
    """Return the copies that begin `day` days after the block."""
    later_ms = day * _DAY_MS
    number = F.lpad((F.col("copy") + 1).cast("string"), 5, "0")
    moved = {
        "relay": F.concat(F.lit(f"{name}-"), number),
        **{column: _shifted(column, later_ms * 1000) for column in _TIMES_US},
        **{column: _shifted(column, later_ms) for column in _TIMES_MS},
        **{column: _shifted_id(F.col(column), later_ms) for column in _IDS},
        "day": F.date_add("day", day),
    }
    return block.withColumn("copy", F.explode(copies)).withColumns(moved)


def _shifted(column: str, by: int) -> Column:
    """Shift a time; 0 and null mean no time and stay."""
    return F.when(F.col(column) > 0, F.col(column) + F.lit(by)).otherwise(F.col(column))


def _shifted_id(identifier: Column, later_ms: int) -> Column:
    """Return the id of a message in a copy: time shifted, four random digits replaced.

    The four digits become the number of the copy. Ids of one millisecond have the same random
    digits and end in a counter, so they keep their order.
    """
    digits = F.translate(F.substring(identifier, 1, 10), _ULID_DIGITS, _BASE32_DIGITS)
    now_ms = F.conv(digits, 32, 10).cast("bigint") + F.lit(later_ms)
    moved = F.concat(
        _ulid_digits(now_ms, 10), _ulid_digits(F.col("copy"), 4), F.substring(identifier, 15, 12)
    )
    return F.when(identifier.rlike(_ULID), moved).otherwise(identifier)


def _ulid_digits(number: Column, count: int) -> Column:
    plain = F.upper(F.conv(number.cast("string"), 10, 32))
    return F.lpad(F.translate(plain, _BASE32_DIGITS, _ULID_DIGITS), count, "0")
