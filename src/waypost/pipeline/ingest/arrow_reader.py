"""On an executor: one segment becomes files of `events`.

Rule 1  A file is named by its relay and segment and appears with all its rows, so a task that is
        tried again, or twice at the same time, leaves what one would.

Nothing is imported here that an executor may have to unpack first.
"""

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from waypost.pipeline.ingest.results import Read
from waypost.pipeline.journal.segments import read_bytes, whole_lines
from waypost.pipeline.spark.executors import unpacked

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from waypost.wire.journal_batches import NoBatch

FOUND = "relay string, segment bigint, day string, events bigint, last_seq bigint"
"""What is told of each file."""

_ROW_GROUP_BYTES = 64 * 1024 * 1024
"""So many bytes of lines become one row group, if they are of one day."""


class Task(NamedTuple):
    """A segment to read, from after an event on."""

    relay: str
    first_seq: int
    path: str
    sealed: bool
    after_seq: int
    """What the lake has of it already."""


class _Damaged(Exception):
    """A segment is not as a relay writes it."""


def write_segments(
    batches: "Iterable[pa.RecordBatch]", tasks: list[Task], events: str, part: str
) -> "Iterator[pa.RecordBatch]":
    """Write those of `tasks` whose numbers come, below `events`; rows of `FOUND`."""
    for batch in batches:
        for number in batch["id"].to_pylist():
            yield _written(tasks[number], Path(events), part)


def _written(task: Task, events: Path, part: str) -> "pa.RecordBatch":
    """Write a segment's files, and tell of each; without a day, it is damaged."""
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
    except BaseException:
        files.abandon()
        raise
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


def _tables(task: Task) -> "Iterator[pa.Table]":
    """The new events of a segment, as much at a time as becomes one row group."""
    import pyarrow as pa

    def complain(piece: "NoBatch") -> None:
        if task.sealed or not piece.unfinished:
            raise _Damaged

    batches: list[pa.RecordBatch] = []
    waiting = 0
    for lines, count in whole_lines(read_bytes(task.path, 0, None), complain):
        batches.append(_parsed(lines, count, task))
        waiting += len(lines)
        if waiting >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(batches)
            batches, waiting = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def _parsed(lines: bytes, count: int, task: Task) -> "pa.RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    from waypost.pipeline.journal.columns import record_batch

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
