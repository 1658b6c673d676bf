"""Reads whole segments with Arrow: each task turns some segments into a file of `events`.

Only the list of segments passes through Java, so a small journal does not wait for the JVM to warm
up.

Rule 1  A file is named after its relay and first segment and appears with all its rows, so a task
        that is retried, or runs twice at the same time, leaves the same result as one run.
Rule 2  A segment that is not exactly as a relay writes it is left to `spark_reader`.

Imports that an executor may have to unpack first stand inside the functions.
"""

import shutil
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from waypost.pipeline.files import create_file, local_path, make_directory
from waypost.pipeline.ingest.results import IngestedBatch, NewEvents
from waypost.pipeline.journal.segments import (
    SEGMENT_MAX_BYTES,
    SegmentFile,
    committed_lines,
    read_bytes,
)
from waypost.pipeline.spark.executors import import_shipped
from waypost.pipeline.spark.partitioning import cores_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from waypost.pipeline.lake.lake import Change
    from waypost.wire.journal_batches import InvalidBytes

WRITTEN_SEGMENT = "relay string, segment bigint, days array<string>, events bigint, last_seq bigint"
"""Schema of the rows that tasks return, one for each segment; days are null if one is damaged."""

_ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Bytes of lines that become one row group."""

_GROUP_MIN_BYTES = 8 * 1024 * 1024
_GROUP_MAX_BYTES = 8 * _ROW_GROUP_BYTES
"""Bytes of lines that become one file, of about the size of a pack."""
_GROUPS_PER_CORE = 4
"""Files to write for each core, so that all cores have about the same to do."""


class ReadTask(NamedTuple):
    """A segment to read."""

    relay: str
    first_seq: int
    path: str
    sealed: bool
    after_seq: int
    """Seq of the last event that the lake already holds."""
    bytes: int | None
    """How much of it to read; None is all of it."""


class _Damaged(Exception):
    """A segment is not as a relay writes it."""


def ingest_with_arrow(change: "Change", segments: list[SegmentFile]) -> IngestedBatch | None:
    """Add the new events of local `segments` to `change`.

    Returns None if a segment is damaged or too large: then nothing was added.
    """
    if any(one.bytes > SEGMENT_MAX_BYTES for one in segments):
        return None
    from waypost.pipeline.lake.lake import EVENTS_TABLE

    pack = change.new_pack()
    directory = Path(local_path(change.lake.path), EVENTS_TABLE, pack).absolute()
    groups = _groups(change, segments)
    numbers = change.lake.spark.range(0, len(groups), 1, len(groups))
    write = partial(write_segments, groups=groups, directory=str(directory))
    written = numbers.mapInArrow(write, WRITTEN_SEGMENT).collect()
    if any(row.days is None for row in written):
        shutil.rmtree(directory, ignore_errors=True)
        return None
    new_events = {
        (row.relay, row.segment): NewEvents(row.last_seq, row.events)
        for row in written
        if row.events
    }
    days = sorted({day for row in written for day in row.days})
    change.add_events(pack, days)
    return IngestedBatch(days, new_events, {})


def _groups(change: "Change", segments: list[SegmentFile]) -> list[list[ReadTask]]:
    """Return groups of segments of a relay, in order, that become one file; the largest first.

    They are as large as a pack, and smaller where there would not be some for each core.
    """
    cores = cores_of(change.lake.spark)
    share = sum(one.bytes for one in segments) // (_GROUPS_PER_CORE * cores)
    wanted = max(_GROUP_MIN_BYTES, min(_GROUP_MAX_BYTES, share))
    groups: list[list[ReadTask]] = []
    sizes: list[int] = []
    for one in sorted(segments, key=lambda one: (one.relay, one.first_seq)):
        last_seq = change.draft.known(one.relay, one.first_seq).last_seq
        size = one.bytes if one.replica else None
        task = ReadTask(one.relay, one.first_seq, local_path(one.path), one.sealed, last_seq, size)
        if groups and groups[-1][0].relay == one.relay and sizes[-1] + one.bytes <= wanted:
            groups[-1].append(task)
            sizes[-1] += one.bytes
        else:
            groups.append([task])
            sizes.append(one.bytes)
    by_size = sorted(range(len(groups)), key=lambda number: -sizes[number])
    return [groups[number] for number in by_size]


def write_segments(
    batches: "Iterable[pa.RecordBatch]", groups: list[list[ReadTask]], directory: str
) -> "Iterator[pa.RecordBatch]":
    """On an executor: write groups of the given numbers; yields rows of `WRITTEN_SEGMENT`."""
    import_shipped()
    for batch in batches:
        for number in batch["id"].to_pylist():
            yield _write_group(groups[number], Path(directory))


def _write_group(group: list[ReadTask], directory: Path) -> "pa.RecordBatch":
    import pyarrow as pa

    file = _GroupFile(directory / f"{group[0].relay}-{group[0].first_seq}.parquet")
    try:
        written = [_write_segment(task, file) for task in group]
    except _Damaged:
        file.discard()
        written = [(group[0].first_seq, None, 0, 0)]
    except BaseException:
        file.discard()
        raise
    else:
        file.publish()
    segments, days, events, last_seqs = zip(*written, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "relay": pa.array([group[0].relay] * len(written), pa.string()),
            "segment": pa.array(segments, pa.int64()),
            "days": pa.array(days, pa.list_(pa.string())),
            "events": pa.array(events, pa.int64()),
            "last_seq": pa.array(last_seqs, pa.int64()),
        }
    )


def _write_segment(task: ReadTask, file: "_GroupFile") -> tuple[int, list[str] | None, int, int]:
    """Append the new events of a segment; returns a row of `WRITTEN_SEGMENT` but the relay."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    def on_damage(piece: "InvalidBytes") -> None:
        if task.sealed or not piece.unfinished:
            raise _Damaged

    days: set[str] = set()
    events = last_seq = 0
    for lines, count in committed_lines(read_bytes(task.path, 0, task.bytes), on_damage):
        rows = _parse(lines, count, task)
        if rows.num_rows:
            file.append(rows, len(lines))
            days.update(str(day) for day in pc.unique(rows["day"]).to_pylist())
            events += rows.num_rows
            last_seq = max(last_seq, pc.max(rows["seq"]).as_py())
    return task.first_seq, sorted(days), events, last_seq


def _parse(lines: bytes, count: int, task: ReadTask) -> "pa.RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc

    from waypost.pipeline.journal.columns import record_batch

    try:
        rows = record_batch(lines, task.relay, task.first_seq, None)
    except (pa.ArrowException, ValueError) as problem:
        raise _Damaged from problem
    complete = not any(rows[name].null_count for name in ("kind", "seq", "at_us"))
    if rows.num_rows != count or not complete:
        raise _Damaged
    return rows.filter(pc.greater(rows["seq"], task.after_seq)) if task.after_seq else rows


class _GroupFile:
    """The file of some segments, if they have new events; it appears with `publish`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        self._writer: Any = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0

    def append(self, rows: "pa.RecordBatch", size: int) -> None:
        """Append rows that were `size` bytes of lines."""
        self._pending.append(rows)
        self._pending_bytes += size
        if self._pending_bytes >= _ROW_GROUP_BYTES:
            self._write_row_group()

    def publish(self) -> None:
        """Write what is pending, and rename the file to its final name."""
        if self._pending:
            self._write_row_group()
        if self._writer is not None:
            self._writer.close()
            self._unfinished.replace(self._path)

    def discard(self) -> None:
        """Delete the unfinished file."""
        if self._writer is not None:
            self._writer.close()
            self._unfinished.unlink()

    def _write_row_group(self) -> None:
        """Write the pending rows, sorted by `EVENT_ORDER`, then as in the segments."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        from waypost.pipeline.lake.lake import EVENT_ORDER, PAGE_ROWS_MAX

        rows = pa.Table.from_batches(self._pending)
        self._pending, self._pending_bytes = [], 0
        if self._writer is None:
            make_directory(self._path.parent)
            create_file(self._unfinished).close()  # Arrow keeps its mode
            self._writer = pq.ParquetWriter(
                self._unfinished,
                rows.schema,
                compression="zstd",
                use_dictionary=_repeating_columns(rows.schema),
                write_page_index=True,
                max_rows_per_page=PAGE_ROWS_MAX,
            )
        order = [(name, "ascending") for name in EVENT_ORDER]
        rows = rows.take(pc.sort_indices(rows, sort_keys=order))
        self._writer.write_table(rows, row_group_size=rows.num_rows)


def _repeating_columns(schema: "pa.Schema") -> list[str]:
    """Return the columns to write with a dictionary, by their paths in a file."""
    import pyarrow as pa

    from waypost.pipeline.lake.lake import UNIQUE_COLUMNS

    return [
        f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
        for field in schema
        if field.name not in UNIQUE_COLUMNS
    ]
