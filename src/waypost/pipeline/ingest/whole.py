"""Whole segments with Arrow: one task reads one of them and writes its files of `events`.

Nothing passes through Java but who is to read what, so a small journal does not wait for Java to
become quick.

Rule 1  A batch that a dead job left unfinished is cleared away first.
Rule 2  What is not exactly as a relay writes it is left to those who read line by line.
"""

import shutil
from functools import partial
from pathlib import Path

from waypost.pipeline.ingest.arrow_reader import FOUND, Task, write_segments
from waypost.pipeline.ingest.results import Key, Read, Taken
from waypost.pipeline.journal.segments import local_path
from waypost.pipeline.journal.sources import SegmentFile
from waypost.pipeline.lake.lake import EVENTS_TABLE, Change


def take_whole(change: Change, segments: list[SegmentFile]) -> Taken | None:
    """Add what `change` does not know yet of `segments`, all of them local, to its events.

    None if some are damaged: then nothing was added.
    """
    events = Path(local_path(change.lake.path), EVENTS_TABLE).absolute()
    _clear(events, change.events_part)
    tasks = [
        Task(
            one.relay,
            one.first_seq,
            local_path(one.path),
            one.sealed,
            change.draft.known(one.relay, one.first_seq).last_seq,
        )
        for one in sorted(segments, key=lambda one: -one.bytes)
    ]
    numbers = change.lake.spark.range(0, len(tasks), 1, len(tasks))
    write = partial(write_segments, tasks=tasks, events=str(events), part=change.events_part)
    found = numbers.mapInArrow(write, FOUND).collect()
    if any(row.day is None for row in found):
        _clear(events, change.events_part)
        return None
    read: dict[Key, Read] = {}
    for row in found:
        before = read.get((row.relay, row.segment), Read(0, 0))
        read[row.relay, row.segment] = Read(
            max(before.last_seq, row.last_seq), before.events + row.events
        )
    days = sorted({row.day for row in found})
    change.add_events(days)
    return Taken(days, read, {})


def _clear(events: Path, part: str) -> None:
    for unfinished in events.glob(f"day=*/{part}"):
        shutil.rmtree(unfinished)
