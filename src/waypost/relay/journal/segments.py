"""Journal segments as files: their names, and reading them back whatever happened to them.

Failures and answers:
  torn write at the end        everything after the last valid commit line is not part of the
                               journal; `end` says where to cut
  a damaged batch inside       it is reported with its place; what follows is still read
  a commit line destroyed      the next commit line knows the length of its own batch, so only
                               the damaged one is lost
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from waypost.relay.errors import JournalUnreadable
from waypost.wire.events import AnyEvent, Commit, decode_commit, decode_event
from waypost.wire.journal_batches import COMMIT_MARK, ValidBatch, read_batches

_COMMIT_LINE_MAX_BYTES = 512


class Location(msgspec.Struct, frozen=True, gc=False):
    """Where an event's line lies: segment (by its first seq), offset and length in bytes."""

    segment: int
    offset: int
    length: int


class Position(msgspec.Struct, frozen=True):
    """How far into the journal something stands: just after the commit of `seq`."""

    seq: int = 0
    at_us: int = 0
    segment: int = 0
    offset: int = 0


class Batch(msgspec.Struct, frozen=True):
    """A committed batch: its lines lie in `data[start:stop]`, its commit line ends at `end`."""

    segment: int
    start: int
    stop: int
    end: int
    commit: Commit
    data: bytes

    def events(self) -> Iterator[tuple[AnyEvent, Location]]:
        """The batch's events with their places, in order."""
        offset = self.start
        while offset < self.stop:
            newline = self.data.index(b"\n", offset, self.stop)
            line = self.data[offset:newline]
            yield decode_line(line), Location(self.segment, offset, newline - offset)
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
    for piece in read_batches(data, start):
        if isinstance(piece, ValidBatch):
            yield Batch(first_seq, *piece, data)
        else:
            yield Damage(first_seq, piece.start, piece.end, at_tail=piece.unfinished)


def last_commit(path: Path) -> Commit | None:
    """The commit line a sealed segment ends with, or None if it does not end with one."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _COMMIT_LINE_MAX_BYTES))
        tail = file.read()
    try:
        return decode_commit(tail[tail.rfind(COMMIT_MARK) + 1 :])
    except msgspec.MsgspecError:
        return None
