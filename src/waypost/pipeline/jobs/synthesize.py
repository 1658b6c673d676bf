"""`simulate --events`: one relay's journal again and again, as the journals of many relays.

Rule 1  A copy is what the same relay would have written under another name, whole days later.
        Instants, and the instants within ids, move together; nothing else changes. So whatever was
        decided is right by the same settings.
Rule 2  Ids of different copies differ. Those that senders chose are the senders' own and stay.
Rule 3  There are exactly as many events as were asked for: the last journal ends early, like that
        of a relay that is still running.
Rule 4  A relay that the lake already knows is an error, and nothing is added.
"""

from functools import reduce

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.journal.sources import JournalSource, list_segments
from waypost.pipeline.lake.events import CORRUPT, EVENTS, LINE, from_lines
from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.lake.manifest import Segment

SPREAD_DAYS = 28
"""Copies begin on so many days, one after the other, then again on the first of them."""

RELAYS_MAX = 1 << 19
"""As many as the letters of an id that are given to the copy can count."""

_DAY_MS = 86_400_000
_ULID = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
_PLAIN_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUV"
_ULID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_INSTANTS_US = ("at_us", "since_us", "until_us", "not_before_us")
_INSTANTS_MS = ("ttl_ms", "seen_ms")


class Repeated(msgspec.Struct, kw_only=True):
    """What was added: `relays` copies of a journal of `block` events, the last one cut."""

    relays: int
    block: int
    events: int
    days: list[str] = []


def repeat(lake: Lake, journal: str, events: int, name: str) -> Repeated:
    """Add `events` events to the lake: the sealed journal at `journal`, as often as it takes.

    The relays are called `name-00001` and so on. Raises `JournalUnusable` if there is no journal,
    `LakeUnusable` if the lake has one of the relays or there would be too many of them.
    """
    change = lake.begin()
    files = list_segments(lake.spark, JournalSource(name, journal))
    block = _block(lake, [one.path for one in files]).persist()
    try:
        held = _segments(block, {one.first_seq: one.bytes for one in files})
        size = sum(one.events for one in held.values())
        copies = -(-events // size)
        names = [f"{name}-{copy + 1:05d}" for copy in range(copies)]
        _check(lake, names)
        days = change.append_events(_copies(block, name, copies, events - (copies - 1) * size))
    finally:
        block.unpersist()
    for relay in names:
        change.draft.relays[relay] = held
    change.draft.relays[names[-1]] = _cut(held, events - (copies - 1) * size)
    change.commit()
    return Repeated(relays=copies, block=size, events=events, days=days)


def _check(lake: Lake, names: list[str]) -> None:
    if len(names) > RELAYS_MAX:
        raise LakeUnusable(
            f"{len(names):,} relays are too many, {RELAYS_MAX:,} can be told apart: repeat a longer"
            " journal"
        )
    known = [relay for relay in names if relay in lake.manifest.relays]
    if known:
        raise LakeUnusable(
            f"this lake already holds a relay {known[0]!r}: nothing was added. Choose another seed"
            " or another lake"
        )


def _block(lake: Lake, paths: list[str]) -> DataFrame:
    """The events of a journal, as they are."""
    first_seq = F.regexp_extract(F.col("_metadata.file_name"), r"^(\d+)\.", 1).cast("bigint")
    reader = lake.spark.read.schema(LINE).option("columnNameOfCorruptRecord", CORRUPT)
    lines = reader.json(paths).select(F.lit("").alias("relay"), first_seq.alias("segment"), "*")
    return from_lines(lines.where(F.col("kind") != "commit"))


def _segments(block: DataFrame, sizes: dict[int, int]) -> dict[int, Segment]:
    counts = block.groupBy("segment").agg(
        F.max("seq").alias("last_seq"), F.count(F.lit(1)).alias("events")
    )
    return {
        row.segment: Segment(row.last_seq, sizes[row.segment], row.events)
        for row in sorted(counts.collect(), key=lambda row: row.segment)
    }


def _cut(held: dict[int, Segment], last_seq: int) -> dict[int, Segment]:
    """What is held of a journal that ends with event `last_seq`."""
    return {
        first: msgspec.structs.replace(
            one,
            last_seq=min(one.last_seq, last_seq),
            events=min(one.events, last_seq - first + 1),
        )
        for first, one in held.items()
        if first <= last_seq
    }


def _copies(block: DataFrame, name: str, copies: int, last_seq: int) -> DataFrame:
    """Every copy of `block`; of the last one, what comes up to `last_seq`.

    Copies that begin on the same day are made by the same tasks: each then writes to few days.
    """
    by_day = [
        _on_day(block, name, day, F.sequence(F.lit(day), F.lit(copies - 1), F.lit(SPREAD_DAYS)))
        for day in range(min(copies, SPREAD_DAYS))
    ]
    whole = (F.col("copy") < copies - 1) | (F.col("seq") <= last_seq)
    return reduce(DataFrame.unionByName, by_day).where(whole).select(*EVENTS.fieldNames())


def _on_day(block: DataFrame, name: str, day: int, copies: Column) -> DataFrame:
    """The copies that begin `day` days after the block does."""
    later_ms = day * _DAY_MS
    number = F.lpad((F.col("copy") + 1).cast("string"), 5, "0")
    moved = {
        "relay": F.concat(F.lit(f"{name}-"), number),
        **{column: _later(column, later_ms * 1000) for column in _INSTANTS_US},
        **{column: _later(column, later_ms) for column in _INSTANTS_MS},
        **{column: _renamed(F.col(column), later_ms) for column in ("id", "parent")},
        "day": F.date_add("day", day),
    }
    return block.withColumn("copy", F.explode(copies)).withColumns(moved)


def _later(column: str, by: int) -> Column:
    """An instant, moved; 0 and null are none."""
    return F.when(F.col(column) > 0, F.col(column) + F.lit(by)).otherwise(F.col(column))


def _renamed(identifier: Column, later_ms: int) -> Column:
    """The id of the same message in another copy: its time moved, four random letters the copy's.

    Ids of one millisecond have the same random letters and end in a count, so they keep their
    order.
    """
    digits = F.translate(F.substring(identifier, 1, 10), _ULID_DIGITS, _PLAIN_DIGITS)
    now_ms = F.conv(digits, 32, 10).cast("bigint") + F.lit(later_ms)
    moved = F.concat(
        _letters(now_ms, 10), _letters(F.col("copy"), 4), F.substring(identifier, 15, 12)
    )
    return F.when(identifier.rlike(_ULID), moved).otherwise(identifier)


def _letters(number: Column, count: int) -> Column:
    plain = F.upper(F.conv(number.cast("string"), 10, 32))
    return F.lpad(F.translate(plain, _PLAIN_DIGITS, _ULID_DIGITS), count, "0")
