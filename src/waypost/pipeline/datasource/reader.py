"""Reading and following a journal with Spark: one task for each segment.

Rule 1  Only whole batches are read, also of the segment that is being written.
Rule 2  A position is (segment, byte, event): everything before that byte was read. It is always
        the end of a whole batch, so it survives sealing, restarts and torn writes.
Rule 3  Nothing is passed over in silence: damage, and segments that were dropped before they were
        read, end the job, or with `damaged=skip` are told in the log.
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
    journal_directory,
    read_bytes,
    segments_in,
    size_of,
    whole_lines,
)
from waypost.pipeline.spark.executors import unpacked

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from waypost.pipeline.journal.columns import ReadBody
    from waypost.wire.journal_batches import NoBatch

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadOptions:
    """What to read, and what to do about what cannot be read."""

    path: str
    relay: str
    payload: bool = False
    skip_damaged: bool = False
    start_segment: int | None = None
    """Where a new stream begins; None is the first segment there is."""

    from_now: bool = False
    """Whether a new stream leaves out what there is already."""


class Stretch(InputPartition):
    """Bytes `start` to `end` of one segment; `end` None is all there is."""

    def __init__(self, segment: SegmentFile, start: int, end: int | None) -> None:
        super().__init__(None)
        self.segment = segment
        self.start = start
        self.end = end


class JournalReader(DataSourceReader):
    """The journal as it is when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[Stretch]:
        """One for each segment; the one being written is read up to where it now ends."""
        directory = journal_directory(self._options.path)
        return [
            Stretch(segment, 0, None if segment.sealed else size_of(segment.path))
            for segment in segments_in(directory)
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The events of one segment."""
        assert isinstance(partition, Stretch)
        return read_stretch(partition, self._options)


class JournalStreamReader(DataSourceStreamReader):
    """The journal as it grows."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._seen: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - named by Spark
        """Where a query without a checkpoint begins."""
        if self._options.from_now:
            return self.latestOffset()
        segments = segments_in(journal_directory(self._options.path))
        wanted = self._options.start_segment or 0
        later = [one.first_seq for one in segments if one.first_seq >= wanted]
        first = min(later, default=wanted or 1)
        return {"segment": first, "offset": 0, "seq": first - 1}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """The end of the last whole batch."""
        unpacked()
        from waypost.wire.journal_batches import WholeBatch, whole_batches

        segments = segments_in(journal_directory(self._options.path))
        if not segments:
            return self._seen or self.initialOffset()
        last = segments[-1]
        position = self._seen
        if position is None or position["segment"] != last.first_seq:
            position = {"segment": last.first_seq, "offset": 0, "seq": last.first_seq - 1}
        offset = position["offset"]
        if size_of(last.path) < offset:
            raise JournalUnusable(f"{last.path} is shorter than what was read of it before")
        ends = [
            (offset + piece.end, piece.commit.seq)
            for piece in whole_batches(read_bytes(last.path, offset, None))
            if isinstance(piece, WholeBatch)
        ]
        if ends:
            position = {"segment": last.first_seq, "offset": ends[-1][0], "seq": ends[-1][1]}
        self._seen = position
        return position

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Stretch]:
        """What lies between two positions, segment by segment."""
        segments = [
            segment
            for segment in segments_in(journal_directory(self._options.path))
            if start["segment"] <= segment.first_seq <= end["segment"]
        ]
        self._complain_of_gap(start, end, segments)
        stretches = [
            Stretch(
                segment,
                start["offset"] if segment.first_seq == start["segment"] else 0,
                end["offset"] if segment.first_seq == end["segment"] else None,
            )
            for segment in segments
        ]
        return [one for one in stretches if one.end is None or one.end > one.start]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The events of one stretch."""
        assert isinstance(partition, Stretch)
        return read_stretch(partition, self._options)

    def _complain_of_gap(
        self, start: dict[str, int], end: dict[str, int], segments: list[SegmentFile]
    ) -> None:
        """A segment may be gone if all of it was read; the next one then follows on directly."""
        first = segments[0].first_seq if segments else None
        if end["seq"] <= start["seq"] or first == start["segment"] or first == start["seq"] + 1:
            return
        _tell(
            f"events {start['seq'] + 1} to {(first or end['seq'] + 1) - 1} of"
            f" {self._options.path} are gone: the relay dropped them before they were read",
            self._options,
        )


def read_stretch(stretch: Stretch, options: ReadOptions) -> "Iterator[pa.RecordBatch]":
    """The events of one stretch, on an executor, some thousands at a time."""
    unpacked()
    from waypost.pipeline.journal.columns import record_batch

    segment = stretch.segment

    def complain(piece: "NoBatch") -> None:
        if not piece.unfinished or stretch.end is None:
            _tell(_damage(segment, stretch.start, piece), options)

    data = read_bytes(segment.path, stretch.start, stretch.end)
    read_body = _body_reader(segment) if options.payload else None
    for lines, _ in whole_lines(data, complain):
        yield record_batch(lines, options.relay, segment.first_seq, read_body)


def _body_reader(segment: SegmentFile) -> "ReadBody":
    path = str(Path(segment.path).with_suffix(".bodies"))
    return lambda offset, length: read_bytes(path, offset, offset + length)


def _damage(segment: SegmentFile, start: int, piece: "NoBatch") -> str:
    return f"{segment.path} is damaged: bytes {start + piece.start} to {start + piece.end}"


def _tell(problem: str, options: ReadOptions) -> None:
    if not options.skip_damaged:
        raise JournalUnusable(f"{problem}; option damaged=skip reads the rest")
    log.warning("%s; passed over", problem)
