"""Journal segments: their file names, and reading them in spite of damage.

Failures and answers:
  torn write at the end        everything after the last valid commit line is not part of the
                               journal; the last batch's `end` is where to cut
  a damaged batch inside       it is reported with its location; later batches are still read
  a commit line destroyed      the next commit line has the length of its own batch, so only
                               the damaged batch is lost
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from waypost.relay.errors import JournalUnreadable
from waypost.wire.events import AnyEvent, Commit, decode_commit, decode_event, split
from waypost.wire.journal_batches import COMMIT_MARK, ValidBatch, batch_hash, read_batches

_COMMIT_LINE_MAX_BYTES = 512
_TAIL_BYTES = 64 * 1024


class Location(msgspec.Struct, frozen=True, gc=False):
    """The location of an event's line: segment (its first seq), offset and length in bytes."""

    segment: int
    offset: int
    length: int


class Position(msgspec.Struct, frozen=True):
    """A position in the journal: just after the commit line of event `seq`."""

    seq: int = 0
    at_us: int = 0
    segment: int = 0
    offset: int = 0


class Batch(msgspec.Struct, frozen=True):
    """A committed batch: its lines are `data[start:stop]`, its commit line ends at `end`."""

    segment: int
    start: int
    stop: int
    end: int
    commit: Commit
    data: bytes

    @property
    def hash(self) -> str:
        """The hash that the next batch names."""
        return batch_hash(memoryview(self.data)[self.start : self.end])

    def events(self) -> Iterator[tuple[AnyEvent, Location]]:
        """Yield the batch's events with the locations of their lines, in order."""
        offset = self.start
        while offset < self.stop:
            newline = self.data.index(b"\n", offset, self.stop)
            line = self.data[offset:newline]
            location = Location(self.segment, offset, newline - offset)
            for event in split(decode_line(line)):
                yield event, location
            offset = newline + 1


class Damage(msgspec.Struct, frozen=True):
    """Bytes of a segment that are not a committed batch."""

    segment: int
    start: int
    end: int
    at_tail: bool


def decode_line(line: bytes) -> AnyEvent:
    """Decode the event of one line; raise `JournalUnreadable` if its kind is unknown."""
    try:
        return decode_event(line)
    except msgspec.ValidationError as problem:
        raise JournalUnreadable(
            f"the journal holds an event that this version of Waypost cannot read ({problem});"
            " use the version that wrote it, or a newer one"
        ) from None


def segment_path(directory: Path, first_seq: int, *, sealed: bool) -> Path:
    """Return the path of the segment whose first event is `first_seq`."""
    return directory / f"{first_seq:020d}.{'jsonl' if sealed else 'open'}"


def bodies_path(directory: Path, first_seq: int) -> Path:
    """Return the path of a segment's file of large payloads."""
    return directory / f"{first_seq:020d}.bodies"


def list_segments(directory: Path) -> dict[int, Path]:
    """Return the path of every segment by its first seq, in order."""
    found = [path for path in directory.glob("*") if path.suffix in (".jsonl", ".open")]
    return {int(path.stem): path for path in sorted(found) if path.stem.isdigit()}


def segment_bytes(path: Path) -> bytes:
    """Read a segment, even if its owner seals it at that moment."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if path.suffix != ".open":
            raise
        return path.with_suffix(".jsonl").read_bytes()


def read_segment(path: Path, first_seq: int, start: int = 0) -> Iterator[Batch | Damage]:
    """Yield the committed batches from offset `start` on, and the damage between them."""
    data = segment_bytes(path)
    for piece in read_batches(data, start):
        if isinstance(piece, ValidBatch):
            yield Batch(first_seq, *piece, data)
        else:
            yield Damage(first_seq, piece.start, piece.end, at_tail=piece.unfinished)


def last_commit(path: Path) -> Commit | None:
    """Return the commit line at the end of a sealed segment, or None if it has none."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _COMMIT_LINE_MAX_BYTES))
        tail = file.read()
    try:
        return decode_commit(tail[tail.rfind(COMMIT_MARK) + 1 :])
    except msgspec.MsgspecError:
        return None


def last_hash(path: Path, end: int) -> str:
    """Return the hash of the last valid batch in the first `end` bytes of a segment, or ""."""
    with path.open("rb") as file:
        for size in (_TAIL_BYTES, end):  # mostly, the tail has a whole batch
            start = max(0, end - size)
            file.seek(start)
            data = file.read(end - start)
            valid = [piece for piece in read_batches(data) if isinstance(piece, ValidBatch)]
            if valid:
                return batch_hash(data[valid[-1].start : valid[-1].end])
    return ""
