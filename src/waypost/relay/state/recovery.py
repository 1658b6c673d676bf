"""Recovery: the state of a data directory, from its index and its journal.

Failures and answers:
  crash while writing     everything after the last commit line of the last segment is cut
  journal lost            a new one begins; if there are mailboxes, the loss is reported
  damage further up       it is copied to `journal/damaged/`, reported, and skipped
  index lost or stale     the whole journal is read
  index damaged           the same, with a new index file
  no room for its log     nothing is opened: a full disk must not cost the index
  and segments deleted    last-seen pairs and duplicate ids of deleted segments are read from
                          `journal/remembered.db`; if that is lost, too, the loss is reported
"""

import logging
import os
import sqlite3
from pathlib import Path

import msgspec

from waypost.relay.data_dir import DataDir, replace_file, sync_directory
from waypost.relay.errors import DataDirUnusable
from waypost.relay.journal.chain import ChainCheck
from waypost.relay.journal.segments import (
    Batch,
    Damage,
    Position,
    last_hash,
    list_segments,
    read_segment,
    segment_path,
)
from waypost.relay.state.index import DAMAGED, Index, take_changes
from waypost.relay.state.relay_state import RelayState
from waypost.relay.state.remembered import RememberedUnusable, read_remembered
from waypost.wire.events import Accepted, Forwarded, Rejected
from waypost.wire.journal_batches import NO_BATCH

log = logging.getLogger("waypost.relay")

_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_WRITE)
"""Errors of an index that is not damaged: there is no room for the files beside it."""


class RecoveryReport(msgspec.Struct):
    """What recovery found and did."""

    events_read: int = 0
    bytes_cut: int = 0
    damaged: list[Damage] = []
    index_rebuilt: str = ""
    forgotten: str = ""
    """What neither the index nor the journal remembers, and why."""
    doubtful: list[str] = []
    """Parts of what was read that only `waypost verify` can judge, one text each."""

    @property
    def problem(self) -> str:
        """What needs an operator's attention."""
        texts = [self.forgotten] if self.forgotten else []
        if self.doubtful:
            more = f" (and {len(self.doubtful) - 1:,} more)" if len(self.doubtful) > 1 else ""
            texts.append(
                f"journal: {self.doubtful[0]}{more}; stop the relay and run 'waypost verify'"
            )
        return "; ".join(texts)

    def note_links(self, chain: ChainCheck) -> None:
        """Note batches that do not follow the one before them; damage is noted by itself."""
        self.doubtful += [
            f"segment {link.segment}: {link}" for link in chain.broken if link.damage is None
        ]


class Continuity:
    """Notes batches of one segment that do not continue the numbers before them.

    A misdirected write leaves a valid batch in the place of another one.
    """

    def __init__(self, segment: int, expected: int, report: RecoveryReport) -> None:
        self._segment = segment
        self._expected = expected
        self._report = report
        self._after_damage = False

    def note(self, piece: Batch | Damage) -> None:
        """Note the next piece of the segment."""
        if isinstance(piece, Damage):
            self._after_damage = True
            return
        first, last = piece.commit.seq - piece.commit.count + 1, piece.commit.seq
        if first == self._expected or (self._after_damage and first > self._expected):
            self._expected, self._after_damage = last + 1, False
            return
        self._after_damage = True  # what it replaced is lost
        self._report.doubtful.append(
            f"events {first:,} to {last:,} are out of place at byte {piece.start:,} of segment"
            f" {self._segment}, where event {self._expected:,} belongs"
        )


class Recovered(msgspec.Struct):
    """The recovered state, and the position at which the journal continues.

    `head` is the hash of the last batch; it is read only if something may be written.
    """

    state: RelayState
    position: Position
    head: str
    index: Index
    report: RecoveryReport


def recover(
    data: DataDir, window_us: int, *, repair: bool = True, use_index: bool = True
) -> Recovered:
    """Recover the state of `data`; with `repair` False, change nothing on disk.

    `window_us` is the length of the rate windows.
    """
    report = RecoveryReport()
    segments = list_segments(data.journal)
    had_journal = _was_used(data)
    index, state, start = _from_index(data, segments, report, writable=repair, use_index=use_index)
    if not segments and had_journal:
        report.forgotten = _journal_lost(data)
    end = _fold(segments, start, state, report)
    _refill_windows(segments, start, state, window_us, report)
    if report.problem:
        log.error("%s", report.problem)
    head = NO_BATCH
    if repair:
        head = _head(segments, end)
        _repair(data, segments, end, report)
    return Recovered(state, end, head, index, report)


def _was_used(data: DataDir) -> bool:
    """Return whether a relay has left mailboxes here: its index or its spare files exist, too."""
    used = data.index.exists() or (data.root / "spares").is_dir()
    return used and data.mailboxes.is_dir() and any(data.mailboxes.iterdir())


def _journal_lost(data: DataDir) -> str:
    return (
        f"the journal of {data.root} is lost, but it has mailboxes: stop the relay, move journal/"
        " elsewhere, and run 'waypost rebuild --from-mailboxes'"
    )


def _from_index(
    data: DataDir,
    segments: dict[int, Path],
    report: RecoveryReport,
    *,
    writable: bool,
    use_index: bool,
) -> tuple[Index, RelayState, Position]:
    """Return the state in the index and its position; replace an unusable index."""
    if use_index and data.index.exists():
        index = None
        try:
            index = Index(data.index, read_only=not writable)
            state, known = _load(index, segments)
            if known is not None:
                return index, state, known
            report.index_rebuilt = "it has another format or is ahead of the journal"
        except (sqlite3.DatabaseError, LookupError, TypeError, ValueError) as problem:
            if writable and getattr(problem, "sqlite_errorcode", None) in _NO_ROOM:
                raise DataDirUnusable(
                    f"cannot open {data.index}: the disk is full ({problem}); free some space"
                ) from None
            report.index_rebuilt = f"it could not be read ({problem})"
        if index is not None:
            index.abandon()
        log.warning("index: rebuilt, because %s", report.index_rebuilt)
    if writable:
        _delete_index(data)
    index, state = Index(data.index if writable else Path(":memory:")), RelayState()
    if min(segments, default=1) > 1:
        _restore_remembered(data, min(segments), index, report)
    _attach(index, state)
    return index, state, Position()


def _restore_remembered(
    data: DataDir, first_seq: int, index: Index, report: RecoveryReport
) -> None:
    """Fill a new index with what deleted segments held beyond messages."""
    try:
        index.restore(read_remembered(data))
    except RememberedUnusable as problem:
        report.forgotten = (
            f"last-seen pairs and duplicate ids from before event {first_seq:,} are lost: the index"
            f" was lost, and journal/remembered.db cannot help: {problem}"
        )


def _load(index: Index, segments: dict[int, Path]) -> tuple[RelayState, Position | None]:
    state, known = RelayState(), index.position()
    if known is None or not _covers(segments, known):
        return state, None
    index.load(state)
    state.seq, state.at_us, state.indexed_seq = known.seq, known.at_us, known.seq
    _attach(index, state)
    return state, known


def _attach(index: Index, state: RelayState) -> None:
    state.last_seen.attach(index.newest_last_seen(), index.pairs(), index.last_seen)
    state.duplicates.attach(index.newest_duplicates(), index.duplicate_keys(), index.duplicate)


def _covers(segments: dict[int, Path], known: Position) -> bool:
    """Return whether the journal reaches the position of the index."""
    path = segments.get(known.segment)
    if path is not None:
        return path.stat().st_size >= known.offset
    return known.offset == 0 and (known.seq == 0 or any(first <= known.seq for first in segments))


def _fold(
    segments: dict[int, Path], start: Position, state: RelayState, report: RecoveryReport
) -> Position:
    end, chain = start, ChainCheck()
    for first_seq, path in segments.items():
        if first_seq < start.segment:
            continue
        offset = start.offset if first_seq == start.segment else 0
        end = Position(state.seq, state.at_us, first_seq, offset)
        numbers = Continuity(first_seq, start.seq + 1 if offset else first_seq, report)
        for piece in read_segment(path, first_seq, offset):
            numbers.note(piece)
            chain.note(piece)
            if isinstance(piece, Damage):
                report.damaged.append(piece)
                continue
            for event, location in piece.events():
                state.apply(event, location)
                report.events_read += 1
            end = Position(piece.commit.seq, piece.commit.at_us, first_seq, piece.end)
    report.note_links(chain)
    last = segments.get(end.segment)
    if last is not None and last.suffix == ".jsonl":
        # Even if no batch of it is left, its name is taken, and so is that number.
        seq = max(end.seq, end.segment)
        end = Position(seq, end.at_us, seq + 1, 0)
    return end


def _head(segments: dict[int, Path], end: Position) -> str:
    """Return the hash of the last valid batch before `end`."""
    for first_seq, path in reversed(segments.items()):
        size = end.offset if first_seq == end.segment else path.stat().st_size
        found = last_hash(path, size)
        if found:
            return found
    return NO_BATCH


def _refill_windows(
    segments: dict[int, Path],
    start: Position,
    state: RelayState,
    window_us: int,
    report: RecoveryReport,
) -> None:
    """Count publishes from before the checkpoint: rate windows are not in the index.

    Damage on the way costs no message, as the index has them; it is noted.
    """
    cutoff_us = state.at_us - window_us
    recent: list[Batch] = []
    for first_seq in sorted((s for s in segments if s <= start.segment), reverse=True):
        numbers, chain = Continuity(first_seq, first_seq, report), ChainCheck()
        batches: list[Batch] = []
        for piece in read_segment(segments[first_seq], first_seq):
            if first_seq == start.segment and piece.start >= start.offset:
                break
            numbers.note(piece)
            chain.note(piece)
            if isinstance(piece, Batch):
                batches += [piece] if piece.commit.seq <= start.seq else []
            else:
                report.doubtful.append(
                    f"bytes {piece.start:,} to {piece.end:,} of segment {first_seq} are damaged"
                )
        report.note_links(chain)
        recent = [b for b in batches if b.commit.at_us > cutoff_us] + recent
        if batches and batches[0].commit.at_us <= cutoff_us:
            break
    newer = state.windows.snapshot(state.at_us // 1000, window_us // 1000)
    state.windows.clear()
    for batch in recent:
        for event, _ in batch.events():
            if isinstance(event, Accepted | Rejected | Forwarded):
                state.senders.count_publish(event)
    for sender, instants in newer.items():
        for at_ms in instants:
            state.windows.record(sender, at_ms)


def _repair(
    data: DataDir, segments: dict[int, Path], end: Position, report: RecoveryReport
) -> None:
    tail = segments.get(end.segment)
    # A torn end was never confirmed. A damaged batch may have been, so it is kept and reported.
    report.damaged = [d for d in report.damaged if d.segment != end.segment or not d.at_tail]
    for damage in report.damaged:
        set_aside(data, segments[damage.segment], damage)
    if tail is not None and tail.stat().st_size > end.offset:
        report.bytes_cut = tail.stat().st_size - end.offset
        os.truncate(tail, end.offset)
        log.warning("journal: cut %d bytes after the last complete batch", report.bytes_cut)
    for first_seq, path in segments.items():
        if path.suffix == ".open" and first_seq != end.segment:
            os.rename(path, segment_path(data.journal, first_seq, sealed=True))
            sync_directory(data.journal)


def checkpoint(data: DataDir) -> None:
    """Bring the index up to the end of the journal, so that opening reads little of it.

    For a directory that no relay has open. Raises `OSError` or `sqlite3.Error`.
    """
    recovered = recover(data, 0)
    try:
        recovered.index.write(take_changes(recovered.state, recovered.position))
    finally:
        recovered.index.close()


def drop_index_after(data: DataDir, segment: int, offset: int) -> None:
    """Delete the index if it holds events from after a place: the journal is cut off there."""
    known = _indexed(data)
    if known is None or (known.segment, known.offset) > (segment, offset):
        _delete_index(data)


def indexed_seq(data: DataDir) -> int:
    """Return the number of the last event in the index; 0 if there is none."""
    known = _indexed(data)
    return known.seq if known is not None else 0


def _indexed(data: DataDir) -> Position | None:
    """Return the position of the index; None if there is none, or it is damaged."""
    if not data.index.exists():
        return None
    try:
        index = Index(data.index, read_only=True)
        known = index.position()
        index.abandon()
    except DAMAGED:
        return None
    return known


def _delete_index(data: DataDir) -> None:
    for leftover in (data.index, Path(f"{data.index}-wal"), Path(f"{data.index}-shm")):
        leftover.unlink(missing_ok=True)


def damaged_copy(data: DataDir, path: Path, damage: Damage) -> Path:
    """Return the path to which damaged bytes of the segment `path` are copied."""
    return data.damaged / f"{path.stem}-{damage.start}-{damage.end}"


def set_aside(data: DataDir, path: Path, damage: Damage) -> None:
    """Copy damaged bytes of the segment `path` to `journal/damaged/`."""
    data.damaged.mkdir(mode=0o700, exist_ok=True)
    copy = damaged_copy(data, path, damage)
    if not copy.exists():
        replace_file(copy, path.read_bytes()[damage.start : damage.end])
        log.error("journal: damaged bytes of %s set aside as %s", path.name, copy)
