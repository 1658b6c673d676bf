"""The events of one message or thread in the journal, found by an index of each segment.

A sealed segment is indexed once, when a history is first looked up in it, and the index is kept in
a file beside it. The open segment is indexed in memory, up to its end at each look-up. So each byte
of the journal is searched about once, however many histories are read.

Failures and answers:
  an index is missing, damaged or outdated   it is rebuilt
  it cannot be written                       the segment is indexed again at the next look-up
  a segment is deleted meanwhile             its events are left out
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeGuard

import msgspec

from waypost.policy.bounds import history_max_events, thread_max_messages
from waypost.relay.journal.line_index import LineIndex, index_lines, load_index, save_index
from waypost.relay.journal.segments import (
    Batch,
    decode_line,
    last_commit,
    list_segments,
    read_segment,
    segment_bytes,
)
from waypost.wire.events import Accepted, AnyEvent, Rejected, split
from waypost.wire.identifiers import ulid_time_ms

log = logging.getLogger("waypost.relay")

_CLOCK_SLACK_MS = 24 * 3_600_000
"""Ids contain the time of the relay's clock, which may have been set back since."""

_UNKNOWN_US = 1 << 63
"""The end of a segment that is still written, or has no commit line: in the future."""

Segments = list[tuple[int, Path]]
Arrival = Accepted | Rejected


class Histories:
    """Looks up histories in the journal of an open relay. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._trusted: set[int] = set()
        """Sealed segments whose index file had a valid checksum."""
        self._ends_us: dict[int, int] = {}
        """The time of the last event of each sealed segment."""
        self._open_segment = 0
        self._open_indexes: list[LineIndex] = []
        """Of consecutive parts of the open segment, each smaller than half of the one before."""

    def find(self, message_id: str) -> list[AnyEvent]:
        """Return the committed events of one message, in order."""
        with self._lock:
            segments = list(list_segments(self._directory).items())
            self._forget_deleted(segments)
            since = _since(segments, message_id, self._end_us)
            found = self._find_in(since, message_id)
            if not found:  # an id chosen by its sender may contain a time in the future
                found = self._find_in([one for one in segments if one not in since], message_id)
            return found

    def find_thread(self, thread: str) -> list[Arrival]:
        """Return the committed arrivals of one thread, in order: one more than
        `thread_max_messages` at most, so that a caller sees that there are more."""
        limit, found = thread_max_messages + 1, list[Arrival]()
        with self._lock:
            segments = list(list_segments(self._directory).items())
            self._forget_deleted(segments)
            for first_seq, path in segments:
                try:
                    for index in self._indexes(first_seq, path):
                        found += _read_arrivals(path, index.find_thread(thread), thread)
                except FileNotFoundError:
                    continue  # deleted since the list was made
                if len(found) >= limit:
                    break
        return found[:limit]

    def _find_in(self, segments: Segments, message_id: str) -> list[AnyEvent]:
        found: list[AnyEvent] = []
        for first_seq, path in segments:
            try:
                for index in self._indexes(first_seq, path):
                    offsets = index.find(message_id)
                    found += _read_lines(path, offsets[:history_max_events], message_id)
            except FileNotFoundError:
                continue  # deleted since the list was made
            if len(found) >= history_max_events:
                break
        return found[:history_max_events]

    def _indexes(self, first_seq: int, path: Path) -> list[LineIndex]:
        """Return the indexes of a segment, of one part after the other."""
        if path.suffix == ".open":
            return self._indexes_of_open(first_seq, path)
        return [self._index_of(first_seq, path)]

    def _index_of(self, first_seq: int, path: Path) -> LineIndex:
        """Return the index of a sealed segment; build it if it has none."""
        index = load_index(path, trusted=first_seq in self._trusted)
        if index is None:
            index = index_lines(path.read_bytes())
            try:
                save_index(path, index)
            except OSError as problem:
                log.warning("journal: index of %s not written: %s", path.name, problem)
                return index
        self._trusted.add(first_seq)
        return index

    def _indexes_of_open(self, first_seq: int, path: Path) -> list[LineIndex]:
        """Return the indexes of the open segment, after indexing its new part."""
        if first_seq != self._open_segment:
            self._open_segment, self._open_indexes = first_seq, []
        indexes = self._open_indexes
        start = indexes[-1].end if indexes else 0
        with _open_segment(path) as file:
            file.seek(start)
            new = index_lines(file.read(), start)
        if new.end > start:
            indexes.append(new)
        while len(indexes) > 1 and 2 * len(indexes[-1]) >= len(indexes[-2]):
            later = indexes.pop()
            indexes[-1] = indexes[-1].merged_with(later)
        return indexes

    def _end_us(self, first_seq: int, path: Path) -> int:
        if first_seq not in self._ends_us:
            end_us = _end_us(first_seq, path)
            if end_us == _UNKNOWN_US:
                return end_us
            self._ends_us[first_seq] = end_us
        return self._ends_us[first_seq]

    def _forget_deleted(self, segments: Segments) -> None:
        known = {first_seq for first_seq, _ in segments}
        self._trusted &= known
        for first_seq in self._ends_us.keys() - known:
            del self._ends_us[first_seq]


def find_events(directory: Path, message_id: str) -> Iterator[AnyEvent]:
    """Yield the committed events of one message, in order, without changing the directory.

    Segments without an index are searched.
    """
    segments = list(list_segments(directory).items())
    since = _since(segments, message_id, _end_us)
    found = False
    for event in _search(since, message_id):
        found = True
        yield event
    if not found:  # an id chosen by its sender may contain a time in the future
        yield from _search([one for one in segments if one not in since], message_id)


def find_thread(directory: Path, thread: str) -> list[Arrival]:
    """Return what `Histories.find_thread` returns, without changing the directory."""
    limit, found = thread_max_messages + 1, list[Arrival]()
    for first_seq, path in list_segments(directory).items():
        try:
            index = load_index(path) if path.suffix == ".jsonl" else None
            if index is None:
                needles = (f'"thread":"{thread}"', f'"id":"{thread}"')
                events = _search_events(first_seq, path, *needles)
                found += (one for one in events if _is_of_thread(one, thread))
            else:
                found += _read_arrivals(path, index.find_thread(thread), thread)
        except FileNotFoundError:
            continue  # deleted since the list was made
        if len(found) >= limit:
            break
    return found[:limit]


def _search(segments: Segments, message_id: str) -> Iterator[AnyEvent]:
    for first_seq, path in segments:
        try:
            index = load_index(path) if path.suffix == ".jsonl" else None
            if index is None:
                yield from _search_lines(first_seq, path, message_id)
            else:
                yield from _read_lines(path, index.find(message_id), message_id)
        except FileNotFoundError:
            continue  # deleted since the list was made


def _search_lines(first_seq: int, path: Path, message_id: str) -> Iterator[AnyEvent]:
    for event in _search_events(first_seq, path, f'"{message_id}"'):
        if getattr(event, "id", None) == message_id:
            yield event


def _search_events(first_seq: int, path: Path, *needles: str) -> Iterator[AnyEvent]:
    """Yield the events of batches that contain one of `needles`."""
    wanted = [needle.encode(errors="surrogateescape") for needle in needles]
    content = segment_bytes(path)
    if not any(needle in content for needle in wanted):
        return
    for piece in list(read_segment(path, first_seq)):
        if isinstance(piece, Batch) and any(
            piece.data.find(needle, piece.start, piece.stop) >= 0 for needle in wanted
        ):
            for event, _ in piece.events():
                yield event


def _read_lines(path: Path, offsets: Iterable[int], message_id: str) -> Iterator[AnyEvent]:
    """Yield the events at `offsets` that have this id."""
    for event in _read_events(path, offsets):
        if getattr(event, "id", None) == message_id:
            yield event


def _read_arrivals(path: Path, offsets: Iterable[int], thread: str) -> Iterator[Arrival]:
    """Yield the arrivals at `offsets` that are of this thread."""
    for event in _read_events(path, offsets):
        if _is_of_thread(event, thread):
            yield event


def _is_of_thread(event: AnyEvent, thread: str) -> TypeGuard[Arrival]:
    return isinstance(event, Accepted | Rejected) and (event.thread or event.id) == thread


def _read_events(path: Path, offsets: Iterable[int]) -> Iterator[AnyEvent]:
    with _open_segment(path) as file:
        for offset in offsets:
            file.seek(offset)
            try:
                yield from split(decode_line(file.readline()))
            except msgspec.DecodeError:
                continue  # damaged since it was indexed


def _open_segment(path: Path) -> BinaryIO:
    """Open a segment, even if its owner seals it at that moment."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        if path.suffix != ".open":
            raise
        return path.with_suffix(".jsonl").open("rb")


def _since(segments: Segments, message_id: str, end_us: Callable[[int, Path], int]) -> Segments:
    """Return the segments that may hold events of a message, by the time in its id."""
    created_ms = ulid_time_ms(message_id)
    if created_ms is None:
        return segments
    cutoff_us = (created_ms - _CLOCK_SLACK_MS) * 1000
    return [one for one in segments if end_us(*one) >= cutoff_us]


def _end_us(first_seq: int, path: Path) -> int:
    """Return the time of the last event of a sealed segment."""
    try:
        commit = last_commit(path) if path.suffix == ".jsonl" else None
    except FileNotFoundError:
        return _UNKNOWN_US  # deleted since the list was made
    return _UNKNOWN_US if commit is None else commit.at_us
