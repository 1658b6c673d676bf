"""Reads whole segments with Arrow: each task turns one segment into files of `events`.

Only the list of segments passes through Java, so a small journal does not wait for the JVM to warm
up.

Rule 1  A file is named after its relay and segment and appears with all its rows, so a task that
        is retried, or runs twice at the same time, leaves the same result as one run.
Rule 2  A batch that a dead job left unfinished is deleted first.
Rule 3  A segment that is not exactly as a relay writes it is left to `spark_reader`.

Imports that an executor may have to unpack first stand inside the functions.
"""

import shutil
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from waypost.pipeline.files import create_file, local_path, make_directory
from waypost.pipeline.ingest.results import IngestedBatch, NewEvents, SegmentKey
from waypost.pipeline.journal.segments import (
    SEGMENT_MAX_BYTES,
    SegmentFile,
    committed_lines,
    read_bytes,
)
from waypost.pipeline.spark.executors import import_shipped

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from waypost.pipeline.lake.lake import Change
    from waypost.wire.journal_batches import InvalidBytes

WRITTEN_FILE = "relay string, segment bigint, day string, events bigint, last_seq bigint"
"""Schema of the rows that tasks return, one for each file; a damaged segment has no day."""

_ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Bytes of lines that become one row group, if they are of one day."""


class ReadTask(NamedTuple):
    """A segment to read."""

    relay: str
    first_seq: int
    path: str
    sealed: bool
    after_seq: int
    """Seq of the last event that the lake already holds."""


class _Damaged(Exception):
    """A segment is not as a relay writes it."""


def ingest_with_arrow(change: "Change", segments: list[SegmentFile]) -> IngestedBatch | None:
    """Add the new events of local `segments` to `change`.

    Returns None if a segment is damaged or too large: then nothing was added.
    """
    if any(one.bytes > SEGMENT_MAX_BYTES for one in segments):
        return None
    from waypost.pipeline.lake.lake import EVENTS_TABLE

    events = Path(local_path(change.lake.path), EVENTS_TABLE).absolute()
    _delete_batch(events, change.events_part)
    tasks = [
        ReadTask(
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
    files = numbers.mapInArrow(write, WRITTEN_FILE).collect()
    if any(row.day is None for row in files):
        _delete_batch(events, change.events_part)
        return None
    new_events: dict[SegmentKey, NewEvents] = {}
    for row in files:
        before = new_events.get((row.relay, row.segment), NewEvents(0, 0))
        new_events[row.relay, row.segment] = NewEvents(
            max(before.last_seq, row.last_seq), before.events + row.events
        )
    days = sorted({row.day for row in files})
    change.add_events(days)
    return IngestedBatch(days, new_events, {})


def _delete_batch(events: Path, part: str) -> None:
    for directory in events.glob(f"day=*/{part}"):
        shutil.rmtree(directory)


def write_segments(
    batches: "Iterable[pa.RecordBatch]", tasks: list[ReadTask], events: str, part: str
) -> "Iterator[pa.RecordBatch]":
    """On an executor: write the `tasks` with the given numbers; yields rows of `WRITTEN_FILE`."""
    for batch in batches:
        for number in batch["id"].to_pylist():
            yield _write_segment(tasks[number], Path(events), part)


def _write_segment(task: ReadTask, events: Path, part: str) -> "pa.RecordBatch":
    import_shipped()
    import pyarrow as pa

    files = _SegmentFiles(events, part, f"{task.relay}-{task.first_seq}.parquet")
    written: list[tuple[str | None, int, int]]
    try:
        for table in _row_groups(task):
            files.append(table)
    except _Damaged:
        files.discard()
        written = [(None, 0, 0)]
    except BaseException:
        files.discard()
        raise
    else:
        written = [*files.publish()]
    days, counts, last = zip(*written, strict=True) if written else ((), (), ())
    return pa.RecordBatch.from_pydict(
        {
            "relay": pa.array([task.relay] * len(days), pa.string()),
            "segment": pa.array([task.first_seq] * len(days), pa.int64()),
            "day": pa.array(days, pa.string()),
            "events": pa.array(counts, pa.int64()),
            "last_seq": pa.array(last, pa.int64()),
        }
    )


def _row_groups(task: ReadTask) -> "Iterator[pa.Table]":
    """Yield the new events of a segment, a row group at a time."""
    import pyarrow as pa

    def on_damage(piece: "InvalidBytes") -> None:
        if task.sealed or not piece.unfinished:
            raise _Damaged

    batches: list[pa.RecordBatch] = []
    pending_bytes = 0
    for lines, count in committed_lines(read_bytes(task.path, 0, None), on_damage):
        batches.append(_parse(lines, count, task))
        pending_bytes += len(lines)
        if pending_bytes >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(batches)
            batches, pending_bytes = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def _parse(lines: bytes, count: int, task: ReadTask) -> "pa.RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    from waypost.pipeline.journal.columns import record_batch

    try:
        rows = record_batch(lines, task.relay, task.first_seq, None)
    except (pa.ArrowException, ValueError) as problem:
        raise _Damaged from problem
    complete = not any(rows[name].null_count for name in ("kind", "seq", "at_us"))
    if rows.num_rows != count or not complete:
        raise _Damaged
    return rows.filter(pc.greater(rows["seq"], task.after_seq)) if task.after_seq else rows


class _SegmentFiles:
    """The files of one segment, one for each day; they appear with `publish`."""

    def __init__(self, events: Path, part: str, name: str) -> None:
        self._events = events
        self._part = part
        self._name = name
        self._unfinished = f".{name}.{uuid.uuid4().hex}"
        self._writers: dict[str, Any] = {}
        self._written: dict[str, NewEvents] = {}

    def append(self, table: "pa.Table") -> None:
        """Append a row group to the file of each day, sorted by kind."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        for day in pc.unique(table["day"]).to_pylist():
            rows = table.filter(pc.equal(table["day"], day)).drop_columns(["day"])
            rows = rows.take(pc.sort_indices(rows["kind"]))
            writer = self._writers.get(str(day))
            if writer is None:
                directory = self._directory(str(day))
                make_directory(directory)
                create_file(directory / self._unfinished).close()  # Arrow keeps its mode
                writer = pq.ParquetWriter(
                    directory / self._unfinished,
                    rows.schema,
                    compression="zstd",
                    write_page_index=True,
                )
                self._writers[str(day)] = writer
            writer.write_table(rows, row_group_size=rows.num_rows)
            before = self._written.get(str(day), NewEvents(0, 0))
            last_seq = max(before.last_seq, pc.max(rows["seq"]).as_py())
            self._written[str(day)] = NewEvents(last_seq, before.events + rows.num_rows)

    def publish(self) -> list[tuple[str, int, int]]:
        """Rename the files to their final names; returns day, events and last seq of each."""
        for day, writer in self._writers.items():
            writer.close()
            directory = self._directory(day)
            (directory / self._unfinished).replace(directory / self._name)
        return [(day, new.events, new.last_seq) for day, new in self._written.items()]

    def discard(self) -> None:
        """Delete the unfinished files."""
        for day, writer in self._writers.items():
            writer.close()
            (self._directory(day) / self._unfinished).unlink()

    def _directory(self, day: str) -> Path:
        return self._events / f"day={day}" / self._part
