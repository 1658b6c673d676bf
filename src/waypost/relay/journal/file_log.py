"""The segment files of one directory as a log: a node's own copy of a replicated journal.

Positions are event numbers. Epochs and nodes of records are not kept: the events name them.

Failures and answers:
  torn write at the end      it is cut off when the log is opened
  bytes another log lacks    `set_aside` copies them to `journal/set-aside/` before it cuts them off
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from waypost.relay.data_dir import replace_file, sync_directory, sync_file
from waypost.relay.errors import LogUnusable
from waypost.relay.journal.line_index import index_path
from waypost.relay.journal.log import (
    NO_HASH,
    Appended,
    Conflict,
    Entry,
    Header,
    Outcome,
    Record,
    Tail,
    hash_of,
)
from waypost.relay.journal.segment_files import SegmentFiles
from waypost.relay.journal.segments import (
    Batch,
    bodies_path,
    list_segments,
    read_segment,
    segment_path,
)
from waypost.wire.events import Accepted, Commit, Forwarded, Rejected, decode_commit

_READ_MAX_BYTES = 4 * 1024 * 1024


class End(NamedTuple):
    """The end of the segments: where the next batch begins."""

    segment: int
    offset: int


class SetAside(NamedTuple):
    """What was cut off: where it began, and the files with a copy of it."""

    begin: End
    files: list[Path]


class FileLog:
    """Appends to and reads the segments of a directory that no relay has open.

    With `sync`, a record is durable when it is appended; otherwise when its segment is sealed, or
    the log closed. Large payloads are always durable before the lines that name them.
    """

    def __init__(self, directory: Path, *, sync: bool = True) -> None:
        self._directory = directory
        self._sync = sync
        _seal_all_but_last(directory)
        self._files: SegmentFiles | None = None
        self._seq, self._hash, self._end = _find_end(directory)

    @property
    def end(self) -> End:
        """Where the next record begins."""
        return self._end

    async def append(self, expected: int, record: Record) -> Outcome:
        """Append a record that begins at `end`. Raises `OSError` if it cannot be written."""
        header = record.header
        if expected != self._seq:
            return Conflict(self._seq)
        if (header.segment, header.offset) != self._end or header.prev != self._hash:
            raise LogUnusable(
                f"a batch for byte {header.offset:,} of segment {header.segment} cannot follow byte"
                f" {self._end.offset:,} of segment {self._end.segment} of {self._directory}"
            )
        files = self._open(header.segment)
        if record.bodies:
            files.open_bodies()
            _write(files.bodies, record.bodies, header.bodies_offset)
            sync_file(files.bodies)
        if record.lines:
            _write(files.lines, record.lines, header.offset)
            if self._sync:
                sync_file(files.lines)
            self._seq = commit_of(record).seq
        self._hash = header.hash
        self._end = End(header.segment, header.offset + len(record.lines))
        if header.seal:
            self.seal(self._end)
        return Appended(self._seq)

    async def read(self, after: int, wait_s: float = 0.0) -> list[Entry]:
        """Return the next batches; `wait_s` is ignored, as no one else appends."""
        found: list[Entry] = []
        size = 0
        for entry in self.records(after):
            found.append(entry)
            size += len(entry.record.lines) + len(entry.record.bodies)
            if size >= _READ_MAX_BYTES:
                break
        return found

    async def tail(self) -> Tail:
        """Return the number of the last event, and the header of its batch."""
        last = [entry.record.header for entry in self.records(self._seq - 1)]
        return Tail(self._seq, last[-1] if last else None)

    async def close(self) -> None:
        """Sync and close the files. Raises `OSError`."""
        if self._files is not None:
            files, self._files = self._files, None
            try:
                files.close(sync=True)
            finally:
                files.close_spares()

    def records(self, after: int = 0) -> Iterator[Entry]:
        """Yield the batches with events after number `after`, in order."""
        segments = list_segments(self._directory)
        begin = max((first for first in segments if first <= after), default=0)
        prev = NO_HASH
        for first, path in segments.items():
            if first < begin:
                continue
            batches = [one for one in read_segment(path, first) if isinstance(one, Batch)]
            bodies_end = 0
            for batch in batches:
                lines = batch.data[batch.start : batch.end]
                bodies_begin, bodies_end = bodies_end, max(bodies_end, _bodies_end(batch))
                hash_ = hash_of(lines)
                if batch.commit.seq > after:
                    seal = path.suffix == ".jsonl" and batch is batches[-1]
                    begins = (first, batch.start, bodies_begin)
                    bodies = _read_bodies(self._directory, first, bodies_begin, bodies_end)
                    header = Header(*begins, seal, hash_, prev, epoch=0, node="")
                    yield Entry(batch.commit.seq, Record(header, lines, bodies))
                prev = hash_

    async def put(self, record: Record) -> SetAside | None:
        """Make the segments hold a record at its place, and end its segment there if it seals.

        If they held something else there, it is cut off and returned.
        """
        header = record.header
        begin = End(header.segment, header.offset)
        end = End(begin.segment, begin.offset + len(record.lines))
        if begin >= self._end:
            await self.append(self._seq, record)
            return None
        if not self._has(record):
            kept = SetAside(begin, self.set_aside(begin))
            await self.append(self._seq, record)
            return kept
        if not header.seal:
            return None
        longer = None
        if self._size(end.segment) > end.offset:
            longer = SetAside(end, self.set_aside(end))
        self.seal(end)
        return longer

    def seal(self, end: End) -> None:
        """Seal the last segment if it ends at a place and is not sealed yet."""
        if self._end == end:
            self._open(end.segment).seal()
            self._end = End(self._seq + 1, 0)

    def hash_before(self, end: End) -> str | None:
        """Return the hash of the batch whose lines end at a place; None if none do."""
        if end == (1, 0):
            return NO_HASH
        for entry in self.records(end.segment - 1):
            header = entry.record.header
            if (header.segment, header.offset + len(entry.record.lines)) == end:
                return header.hash
            if header.segment > end.segment:
                break
        return None

    def set_aside(self, end: End) -> list[Path]:
        """Cut off everything after a place, and return the files that hold a copy of it."""
        if self._files is not None:
            self._files.close(sync=True)
        kept: list[Path] = []
        for first, path in list_segments(self._directory).items():
            offset = end.offset if first == end.segment else 0
            if first < end.segment or (first == end.segment and path.stat().st_size < offset):
                continue
            content = path.read_bytes()[offset:]
            if content:
                kept += self._keep_bodies(first, path, offset)
                kept.append(self._keep(f"{first:020d}-{offset}.jsonl", content))
            if first > end.segment:
                bodies_path(self._directory, first).unlink(missing_ok=True)
                path.unlink()
            else:
                os.truncate(path, offset)
                os.replace(path, segment_path(self._directory, first, sealed=False))
            index_path(path).unlink(missing_ok=True)
        sync_directory(self._directory)
        self._seq, self._hash, self._end = _find_end(self._directory)
        return kept

    def _open(self, segment: int) -> SegmentFiles:
        if self._files is None:
            self._files = SegmentFiles(self._directory)
        if self._files.segment != segment:
            self._files.open(segment)
        return self._files

    def _has(self, record: Record) -> bool:
        """Return whether the segments have the lines of a record at its place."""
        path = list_segments(self._directory).get(record.header.segment)
        begin = record.header.offset
        end = begin + len(record.lines)
        return path is not None and _read(path, begin, end) == record.lines

    def _keep_bodies(self, first: int, path: Path, offset: int) -> list[Path]:
        """Copy the large payloads of the batches from `offset` on: others are written over them.

        The name has the byte at which the copy begins.
        """
        bodies, begin = bodies_path(self._directory, first), 0
        if not bodies.exists():
            return []
        for one in read_segment(path, first):
            if isinstance(one, Batch) and one.end <= offset:
                begin = max(begin, _bodies_end(one))
        content = _read(bodies, begin, bodies.stat().st_size)
        return [self._keep(f"{first:020d}-{begin}.bodies", content)] if content else []

    def _size(self, segment: int) -> int:
        path = list_segments(self._directory).get(segment)
        return path.stat().st_size if path is not None else 0

    def _keep(self, name: str, content: bytes) -> Path:
        directory = self._directory / "set-aside"
        directory.mkdir(mode=0o700, exist_ok=True)
        path, number = directory / name, 1
        while path.exists() and path.read_bytes() != content:
            path, number = directory / f"{name}.{number}", number + 1
        replace_file(path, content)
        return path


def commit_of(record: Record) -> Commit:
    """Return the commit line of a record; raise `LogUnusable` if it is not a batch."""
    lines, header = record.lines, record.header
    try:
        commit = decode_commit(lines[lines.rfind(b"\n", 0, -1) + 1 :])
    except msgspec.MsgspecError:
        commit = None
    if commit is None or hash_of(lines) != header.hash:
        raise LogUnusable(
            f"the replicated log holds a damaged batch for byte {header.offset:,} of segment"
            f" {header.segment}: restore the stream from a backup, or from a node that has it"
        )
    return commit


def _find_end(directory: Path) -> tuple[int, str, End]:
    """Return the last event's number, its batch's hash, and the end; cut off a torn write."""
    segments, end = list_segments(directory), End(1, 0)
    for first, path in reversed(segments.items()):
        batches = [one for one in read_segment(path, first) if isinstance(one, Batch)]
        is_last = first == max(segments)
        if is_last and path.suffix == ".open":
            end = End(first, batches[-1].end if batches else 0)
            os.truncate(path, end.offset)
        if batches:
            last = batches[-1]
            if is_last and path.suffix == ".jsonl":
                end = End(last.commit.seq + 1, 0)
            return last.commit.seq, hash_of(last.data[last.start : last.end]), end
    return 0, NO_HASH, end


def _seal_all_but_last(directory: Path) -> None:
    """Finish a seal that a crash interrupted."""
    segments = list_segments(directory)
    for first, path in segments.items():
        if path.suffix == ".open" and first != max(segments):
            os.rename(path, segment_path(directory, first, sealed=True))


def _bodies_end(batch: Batch) -> int:
    if batch.data.find(b'"body":', batch.start, batch.stop) < 0:
        return 0
    arrivals = Accepted | Rejected | Forwarded
    events = (event for event, _ in batch.events() if isinstance(event, arrivals))
    return max((one.body.offset + one.body.length for one in events if one.body), default=0)


def _read_bodies(directory: Path, segment: int, begin: int, end: int) -> bytes:
    if end <= begin:
        return b""
    return _read(bodies_path(directory, segment), begin, end)


def _read(path: Path, begin: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(end - begin)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view, done = memoryview(data), 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)
