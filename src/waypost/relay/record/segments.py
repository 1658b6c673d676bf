"""Journal segments as files: their names, and reading them back whatever happened to them.

Failures and answers:
  torn write at the end        everything after the last valid commit line is not part of the
                               journal; `end` says where to cut
  a damaged batch inside       it is reported with its place; what follows is still read
  a commit line destroyed      the next commit line knows the length of its own batch, so only
                               the damaged one is lost
"""

import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from waypost.relay.errors import JournalUnreadable
from waypost.wire.events import COMMIT_PREFIX, AnyEvent, Commit, decode_commit, decode_event

_COMMIT_MARK = b"\n" + COMMIT_PREFIX
_COMMIT_LINE_MAX_BYTES = 512


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where an event's line lies: segment (by its first seq), offset and length in bytes."""

    segment: int
    offset: int
    length: int


class Batch(msgspec.Struct, frozen=True):
    """A committed batch: its lines lie in `data[start:stop]`, its commit line ends at `end`."""

    segment: int
    start: int
    stop: int
    end: int
    commit: Commit
    data: bytes

    def events(self) -> Iterator[tuple[AnyEvent, Place]]:
        """The batch's events with their places, in order."""
        offset = self.start
        while offset < self.stop:
            newline = self.data.index(b"\n", offset, self.stop)
            line = self.data[offset:newline]
            yield decode_line(line), Place(self.segment, offset, newline - offset)
            offset = newline + 1


class Damage(msgspec.Struct, frozen=True):
    """Bytes of a segment that are not a committed batch."""

    segment: int
    start: int
    end: int
    at_tail: bool


def decode_line(line: bytes) -> AnyEvent:
    """The event of one line; raises `JournalUnreadable` for kinds this version does not know."""
    try:
        return decode_event(line)
    except msgspec.ValidationError as problem:
        raise JournalUnreadable(
            f"the journal holds an event this version of Waypost cannot read ({problem});"
            " open it with the version that wrote it, or a newer one"
        ) from None


def segment_path(directory: Path, first_seq: int, *, sealed: bool) -> Path:
    """The file of the segment that begins with event `first_seq`."""
    return directory / f"{first_seq:020d}.{'jsonl' if sealed else 'open'}"


def bodies_path(directory: Path, first_seq: int) -> Path:
    """The file of large payloads beside a segment."""
    return directory / f"{first_seq:020d}.bodies"


def list_segments(directory: Path) -> dict[int, Path]:
    """First seq → file of every segment, in order."""
    found = [path for path in directory.glob("*") if path.suffix in (".jsonl", ".open")]
    return {int(path.stem): path for path in sorted(found) if path.stem.isdigit()}


def segment_bytes(path: Path) -> bytes:
    """The content of a segment, which its owner may seal at any moment."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if path.suffix != ".open":
            raise
        return path.with_suffix(".jsonl").read_bytes()


def read_segment(path: Path, first_seq: int, start: int = 0) -> Iterator[Batch | Damage]:
    """Committed batches from offset `start` on, and between them what is damaged."""
    data = segment_bytes(path)
    looked_until = broken_until = start
    while start < len(data):
        mark = data.find(_COMMIT_MARK, looked_until)
        newline = data.find(b"\n", mark + 1) if mark >= 0 else -1
        if newline < 0:
            yield from _unfinished(first_seq, start, broken_until, len(data))
            return
        batch = _batch_before(data, first_seq, start, mark + 1, newline + 1)
        if batch is None:
            # The damage may reach into the next batch, whose own commit line says where it begins.
            looked_until, broken_until = mark + 1, newline + 1
            continue
        if batch.start > start:
            yield Damage(first_seq, start, batch.start, at_tail=False)
        yield batch
        start = looked_until = broken_until = batch.end


def last_commit(path: Path) -> Commit | None:
    """The commit line a sealed segment ends with, or None if it does not end with one."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _COMMIT_LINE_MAX_BYTES))
        tail = file.read()
    try:
        return decode_commit(tail[tail.rfind(_COMMIT_MARK) + 1 :])
    except msgspec.MsgspecError:
        return None


def _unfinished(first_seq: int, start: int, broken_until: int, end: int) -> Iterator[Damage]:
    """What no whole batch follows: batches once committed and now broken, then a torn write."""
    if broken_until > start:
        yield Damage(first_seq, start, broken_until, at_tail=False)
    if end > broken_until:
        yield Damage(first_seq, broken_until, end, at_tail=True)


def _batch_before(data: bytes, first_seq: int, start: int, stop: int, end: int) -> Batch | None:
    """The batch closed by the line `data[stop:end]`, if it is whole and begins after `start`."""
    try:
        commit = decode_commit(data[stop:end])
    except msgspec.MsgspecError:
        return None
    claimed = stop - commit.bytes
    if not start <= claimed < stop:
        return None
    if zlib.crc32(memoryview(data)[claimed:stop]) != commit.crc:
        return None
    return Batch(first_seq, claimed, stop, end, commit, data)
