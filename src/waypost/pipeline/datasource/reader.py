"""Reads and follows a journal with Spark: one task for each segment.

Rule 1  Only valid batches are read, also of the segment that is being written.
Rule 2  A position is (segment, byte, seq): everything before that byte was read. It is always
        the end of a valid batch, so it survives sealing, restarts and torn writes.
Rule 3  Nothing is skipped silently: damage, and segments deleted before they were read, end the
        job, or with `damaged=skip` are logged.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.journal.segments import (
    SegmentFile,
    committed_lines,
    list_local_segments,
    read_bytes,
)
from waypost.pipeline.spark.executors import import_shipped

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from waypost.pipeline.journal.columns import ReadBody
    from waypost.wire.journal_batches import InvalidBytes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading: which journal, which columns, and how to treat damage."""

    path: str
    relay: str
    payload: bool = False
    skip_damaged: bool = False
    start_segment: int | None = None
    """First segment of a new stream; None is the oldest one."""

    from_now: bool = False
    """Whether a new stream skips the events that already exist."""

    def segments(self) -> list[SegmentFile]:
        """Return the segments of the journal, in order. Raises `JournalUnusable`."""
        return list_local_segments(self.relay, self.path)


class SegmentRange(InputPartition):
    """Bytes `start` to `end` of one segment; `end` None is the end of the file."""

    def __init__(self, segment: SegmentFile, start: int, end: int | None) -> None:
        super().__init__(None)
        self.segment = segment
        self.start = start
        self.end = end


class JournalReader(DataSourceReader):
    """Reads the journal as it is when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[SegmentRange]:
        """Return a partition for each segment; an open one ends at its current length."""
        return [
            SegmentRange(segment, 0, None if segment.sealed else segment.bytes)
            for segment in self._options.segments()
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the events of one segment."""
        assert isinstance(partition, SegmentRange)
        return read_range(partition, self._options)


class JournalStreamReader(DataSourceStreamReader):
    """Follows the journal as it grows."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._seen: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - named by Spark
        """Return where a query without a checkpoint begins."""
        if self._options.from_now:
            return self.latestOffset()
        wanted = self._options.start_segment or 0
        later = [one.first_seq for one in self._options.segments() if one.first_seq >= wanted]
        first = min(later, default=wanted or 1)
        return {"segment": first, "offset": 0, "seq": first - 1}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the end of the last valid batch."""
        import_shipped()
        from waypost.wire.journal_batches import ValidBatch, read_batches

        segments = self._options.segments()
        if not segments:
            return self._seen or self.initialOffset()
        last = segments[-1]
        position = self._seen
        if position is None or position["segment"] != last.first_seq:
            position = {"segment": last.first_seq, "offset": 0, "seq": last.first_seq - 1}
        offset = position["offset"]
        if last.bytes < offset and last.replica:
            return position  # a node that crashed is behind for a moment
        if last.bytes < offset:
            raise JournalUnusable(
                f"{last.path} is shorter than before: {last.bytes} bytes, of which {offset} were"
                " read earlier"
            )
        end = last.bytes if last.replica else None
        ends = [
            (offset + piece.end, piece.commit.seq)
            for piece in read_batches(read_bytes(last.path, offset, end))
            if isinstance(piece, ValidBatch)
        ]
        if ends:
            position = {"segment": last.first_seq, "offset": ends[-1][0], "seq": ends[-1][1]}
        self._seen = position
        return position

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[SegmentRange]:
        """Return the segments between two positions."""
        segments = [
            segment
            for segment in self._options.segments()
            if start["segment"] <= segment.first_seq <= end["segment"]
        ]
        self._check_for_gap(start, end, segments)
        ranges = [
            SegmentRange(
                segment,
                start["offset"] if segment.first_seq == start["segment"] else 0,
                end["offset"] if segment.first_seq == end["segment"] else None,
            )
            for segment in segments
        ]
        return [one for one in ranges if one.end is None or one.end > one.start]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the events of one range."""
        assert isinstance(partition, SegmentRange)
        return read_range(partition, self._options)

    def _check_for_gap(
        self, start: dict[str, int], end: dict[str, int], segments: list[SegmentFile]
    ) -> None:
        """Report deleted segments, unless all of them were read: then the next one follows on."""
        first = segments[0].first_seq if segments else None
        if end["seq"] <= start["seq"] or first == start["segment"] or first == start["seq"] + 1:
            return
        _report(
            f"events {start['seq'] + 1} to {(first or end['seq'] + 1) - 1} of"
            f" {self._options.path} are missing: the relay deleted them before they were read",
            self._options,
        )


def read_range(part: SegmentRange, options: ReadOptions) -> "Iterator[pa.RecordBatch]":
    """On an executor: yield the events of a range, some thousands at a time."""
    import_shipped()
    from waypost.pipeline.journal.columns import record_batch

    segment = part.segment

    def on_damage(piece: "InvalidBytes") -> None:
        if not piece.unfinished or part.end is None:
            first, last = part.start + piece.start, part.start + piece.end
            _report(f"{segment.path} is damaged: bytes {first} to {last}", options)

    data = read_bytes(segment.path, part.start, part.end)
    read_body = _body_reader(segment) if options.payload else None
    for lines, _ in committed_lines(data, on_damage):
        rows = record_batch(lines, options.relay, segment.first_seq, read_body)
        if rows["at_us"].null_count:
            _report(f"{segment.path} has events without a possible time", options)
            rows = rows.filter(rows["at_us"].is_valid())
        yield rows


def _body_reader(segment: SegmentFile) -> "ReadBody":
    path = str(Path(segment.path).with_suffix(".bodies"))
    return lambda offset, length: read_bytes(path, offset, offset + length)


def _report(problem: str, options: ReadOptions) -> None:
    if not options.skip_damaged:
        raise JournalUnusable(f"{problem}; option damaged=skip reads the rest")
    log.warning("%s; skipped", problem)
