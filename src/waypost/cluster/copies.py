"""The journal of one node, compared with the records of its partition's stream, without changes.

Rule 1  Nothing is written: the node may be running.
Rule 2  The mark is read before the stream. So what it names was confirmed before, and a stream that
        is read afterwards and lacks it has lost it.
"""

from pathlib import Path

import msgspec

from waypost.relay.journal.confirmed import read_mark
from waypost.relay.journal.file_log import End
from waypost.relay.journal.log import Record
from waypost.relay.journal.segments import (
    Batch,
    bodies_path,
    list_segments,
    read_segment,
    segment_path,
)

LOST = ".lost"
"""Ends the names of files set aside with events that the log has lost."""


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node's journal. `state`: same, behind, ahead, different or none.

    `ahead` are batches that the stream does not have, `confirmed` whether it had confirmed one of
    them. `lost` are files with events that the stream lost earlier.
    """

    directory: str
    state: str
    records: int = 0
    ahead: int = 0
    confirmed: bool = False
    findings: list[str] = []
    lost: list[str] = []


class CopyCheck:
    """Compares the journal of a partition with the records of the stream, one after the other."""

    def __init__(self, directory: Path) -> None:
        self._root = directory
        self._journal = directory / "journal"
        self._mark = read_mark(self._journal)
        self._records = 0
        self._ends: End | None = None
        """Where the journal ends before the stream does."""
        self._differs: End | None = None

    def note(self, record: Record) -> None:
        """Compare the next record of the stream."""
        begin = End(record.header.segment, record.header.offset)
        if self._ends is not None or self._differs is not None:
            return
        if not record.lines:
            return
        own = self._read(begin, len(record.lines))
        if own is None:
            return  # past the retention of this node
        if own != record.lines and record.lines.startswith(own):
            self._ends = begin
        elif own != record.lines or not self._has_bodies(record):
            self._differs = begin
        else:
            self._records += 1

    def report(self, end: End) -> CopyReport:
        """Return the comparison, with the stream read up to `end`."""
        place = self._differs or self._ends or end
        ahead = 0 if self._ends is not None else self._batches_after(place)
        confirmed = bool(ahead) and self._mark.is_after(*place)
        state = "same"
        if not list_segments(self._journal):
            state = "none"
        elif self._differs is not None:
            state = "different"
        elif self._ends is not None:
            state = "behind"
        elif ahead:
            state = "ahead"
        return CopyReport(
            directory=str(self._root),
            state=state,
            records=self._records,
            ahead=ahead,
            confirmed=confirmed,
            findings=self._findings(place, ahead, confirmed=confirmed),
            lost=[str(path) for path in lost_files(self._journal)],
        )

    def _findings(self, place: End, ahead: int, *, confirmed: bool) -> list[str]:
        found = []
        if confirmed:
            where = f"byte {place.offset:,} of segment {place.segment}"
            count = f"{ahead:,} {'batch' if ahead == 1 else 'batches'}"
            if self._differs is not None:
                text = f"the stream has other batches in the place of {count} from {where} on"
            else:
                text = f"the stream lacks {count} from {where} on"
            found.append(f"{text}, which it had confirmed; {self._root} has them")
        found += [f"{path} has events that the stream lost" for path in lost_files(self._journal)]
        return found

    def _read(self, begin: End, length: int) -> bytes | None:
        """Return up to `length` bytes at a place; None if the journal has only later segments."""
        for sealed in (False, True, False):  # it may be sealed at this moment
            try:
                return _read(
                    segment_path(self._journal, begin.segment, sealed=sealed), begin.offset, length
                )
            except FileNotFoundError:
                continue
        segments = list_segments(self._journal)
        return None if segments and min(segments) > begin.segment else b""

    def _has_bodies(self, record: Record) -> bool:
        if not record.bodies:
            return True
        header = record.header
        try:
            path = bodies_path(self._journal, header.segment)
            return _read(path, header.bodies_offset, len(record.bodies)) == record.bodies
        except FileNotFoundError:
            return False

    def _batches_after(self, place: End) -> int:
        found = 0
        for first, path in list_segments(self._journal).items():
            if first >= place.segment:
                start = place.offset if first == place.segment else 0
                pieces = read_segment(path, first, start)
                found += sum(isinstance(piece, Batch) for piece in pieces)
        return found


def lost_files(journal: Path) -> list[Path]:
    """Return the files with events that the log has lost, and that are not repaired yet."""
    return sorted((journal / "set-aside").glob(f"*{LOST}"))


def _read(path: Path, begin: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(length)
