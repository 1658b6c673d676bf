"""Keeping a day of `events` in few parts, though a stream adds one with every commit.

Rule 1  A day with too many parts is written anew as one, in the commit that would add another.
Rule 2  Parts are deleted once neither the current version nor the one before it names them, and
        only where the lake lies on a file system of this machine.
"""

import contextlib
import shutil
from pathlib import Path

from pyspark.sql import DataFrame

from waypost.pipeline.journal.segments import local_path
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, Change, Lake
from waypost.pipeline.lake.manifest import Manifest

PARTS_MAX = 50
"""Above this, a day is written anew."""


def compacted(change: Change, rows: DataFrame, parts_max: int) -> DataFrame:
    """`rows` to append, and with them the days that have too many parts, which those then leave."""
    parts = change.draft.tables.get(EVENTS_TABLE, {})
    days = [day for day, of_day in parts.items() if len(of_day) > parts_max]
    if not days:
        return rows
    old = change.read(EVENTS_TABLE, EVENTS, days)
    for day in days:
        parts[day] = []
    both = rows.unionByName(old).repartition("day")
    return both.sortWithinPartitions("day", "relay", "seq")


def sweep(lake: Lake, before: Manifest, parts_max: int) -> None:
    """Delete what the commit from `before` to `lake`'s version leaves unused of compacted days."""
    was = before.tables.get(EVENTS_TABLE, {})
    now = lake.manifest.tables.get(EVENTS_TABLE, {})
    days = [day for day, parts in was.items() if len(parts) > parts_max and len(now[day]) == 1]
    for day in days:
        used = {*was[day], *now[day]}
        for part in Path(local_path(lake.path), EVENTS_TABLE, f"day={day}").glob("batch=*"):
            number = part.name.removeprefix("batch=")
            if part.name not in used and number.isdigit() and int(number) <= before.version:
                with contextlib.suppress(OSError):
                    shutil.rmtree(part)
