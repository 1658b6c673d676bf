"""Whole segments with Arrow: one task reads one of them and writes its files of `events`.

Nothing passes through Java but who is to read what, so a small journal does not wait for Java to
become quick.

Rule 1  A file is named by its relay and segment and appears with all its rows, so a task that is
        tried again, or twice at the same time, leaves what one would.
Rule 2  A batch that a dead job left unfinished is cleared away first.
Rule 3  What is not exactly as a relay writes it is left to those who read line by line.
"""

import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import SparkSession

from waypost.pipeline.datasource.files import local_path, read_bytes
from waypost.pipeline.lake.lake import EVENTS_TABLE, Change
from waypost.pipeline.segments.taken import Key, Read, Taken
from waypost.pipeline.start.shipping import unpacked

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from waypost.pipeline.journals import SegmentFile

_FOUND = "relay string, segment bigint, day string, events bigint, last_seq bigint"
_ROWS_AT_ONCE_BYTES = 4 * 1024 * 1024
_ROW_GROUP_BYTES = 64 * 1024 * 1024
"""So many bytes of lines become one row group, if they are of one day."""


class _Task(NamedTuple):
    relay: str
    first_seq: int
    path: str
    sealed: bool
    after_seq: int
    """What the lake has of it already."""


class _Damaged(Exception):
    """A segment is not as a relay writes it."""


def take_whole(change: "Change", segments: "list[SegmentFile]") -> Taken | None:
    """Add what `change` does not know yet of `segments`, all of them local, to its events.

    None if some are damaged: then nothing was added.
    """
    events = Path(local_path(change.lake.path), EVENTS_TABLE).absolute()
    _clear(events, change.events_part)
    tasks = [
        _Task(
            one.relay,
            one.first_seq,
            local_path(one.path),
            one.sealed,
            change.draft.known(one.relay, one.first_seq).last_seq,
        )
        for one in sorted(segments, key=lambda one: -one.bytes)
    ]
    found = _run(change.lake.spark, tasks, str(events), change.events_part)
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


def _run(spark: SparkSession, tasks: list[_Task], events: str, part: str) -> list[Any]:
    def take(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield _written(tasks[number], Path(events), part)

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    return numbers.mapInArrow(take, _FOUND).collect()


def _written(task: _Task, events: Path, part: str) -> "pa.RecordBatch":
    """On an executor: write a segment's files, and tell of each; without a day, it is damaged."""
    unpacked()
    import pyarrow as pa

    told: list[tuple[str | None, int, int]]
    files = _Files(events, part, f"{task.relay}-{task.first_seq}.parquet")
    try:
        for table in _tables(task):
            files.add(table)
    except _Damaged:
        files.abandon()
        told = [(None, 0, 0)]
    else:
        told = [*files.finish()]
    days, counts, last = zip(*told, strict=True) if told else ((), (), ())
    return pa.RecordBatch.from_pydict(
        {
            "relay": pa.array([task.relay] * len(days), pa.string()),
            "segment": pa.array([task.first_seq] * len(days), pa.int64()),
            "day": pa.array(days, pa.string()),
            "events": pa.array(counts, pa.int64()),
            "last_seq": pa.array(last, pa.int64()),
        }
    )


def _tables(task: _Task) -> "Iterator[pa.Table]":
    """The new events of a segment, as much at a time as becomes one row group."""
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    waiting = 0
    for lines, count in _stretches(task):
        batches.append(_parsed(lines, count, task))
        waiting += len(lines)
        if waiting >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(batches)
            batches, waiting = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def _stretches(task: _Task) -> Iterator[tuple[bytes, int]]:
    """Lines of whole batches, some megabytes at a time, and how many events they should hold."""
    from waypost.wire.batches import NoBatch, whole_batches

    data = read_bytes(task.path, 0, None)
    pieces: list[bytes] = []
    waiting = count = 0
    for piece in whole_batches(data):
        if isinstance(piece, NoBatch):
            if task.sealed or not piece.unfinished:
                raise _Damaged
            continue
        pieces.append(data[piece.start : piece.stop])
        waiting += piece.stop - piece.start
        count += piece.commit.count
        if waiting >= _ROWS_AT_ONCE_BYTES:
            yield b"".join(pieces), count
            pieces, waiting, count = [], 0, 0
    if pieces:
        yield b"".join(pieces), count


def _parsed(lines: bytes, count: int, task: _Task) -> "pa.RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    from waypost.pipeline.datasource.columns import record_batch

    try:
        rows = record_batch(lines, task.relay, task.first_seq, None)
    except (pa.ArrowException, ValueError) as problem:
        raise _Damaged from problem
    placed = not any(rows[name].null_count for name in ("kind", "seq", "at_us"))
    if rows.num_rows != count or not placed:
        raise _Damaged
    return rows.filter(pc.greater(rows["seq"], task.after_seq)) if task.after_seq else rows


class _Files:
    """The files of one segment, one for each day, which appear when they are finished."""

    def __init__(self, events: Path, part: str, name: str) -> None:
        self._events = events
        self._part = part
        self._name = name
        self._unfinished = f".{name}.{uuid.uuid4().hex}"
        self._writers: dict[str, Any] = {}
        self._told: dict[str, Read] = {}

    def add(self, table: "pa.Table") -> None:
        """Append a row group to the file of each day; within it, events lie by kind."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        for day in pc.unique(table["day"]).to_pylist():
            rows = table.filter(pc.equal(table["day"], day)).drop_columns(["day"])
            rows = rows.take(pc.sort_indices(rows["kind"]))
            writer = self._writers.get(str(day))
            if writer is None:
                directory = self._directory(str(day))
                directory.mkdir(parents=True, exist_ok=True)
                writer = pq.ParquetWriter(
                    directory / self._unfinished,
                    rows.schema,
                    compression="zstd",
                    write_page_index=True,
                )
                self._writers[str(day)] = writer
            writer.write_table(rows, row_group_size=rows.num_rows)
            before = self._told.get(str(day), Read(0, 0))
            last_seq = max(before.last_seq, pc.max(rows["seq"]).as_py())
            self._told[str(day)] = Read(last_seq, before.events + rows.num_rows)

    def finish(self) -> list[tuple[str, int, int]]:
        """Show the files; for each its day, the number of its events, and the last of them."""
        for day, writer in self._writers.items():
            writer.close()
            directory = self._directory(day)
            (directory / self._unfinished).replace(directory / self._name)
        return [(day, told.events, told.last_seq) for day, told in self._told.items()]

    def abandon(self) -> None:
        """Leave nothing."""
        for day, writer in self._writers.items():
            writer.close()
            (self._directory(day) / self._unfinished).unlink()

    def _directory(self, day: str) -> Path:
        return self._events / f"day={day}" / self._part
