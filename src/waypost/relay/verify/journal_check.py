"""Reads the journal from its first line to its last: checksums, chain, event numbers, payloads.

A gap is damaged bytes, missing event numbers, or a torn end, which is no loss because nothing in
it was ever confirmed.
"""

import os
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import msgspec

from waypost.relay.journal.chain import ChainCheck
from waypost.relay.journal.segments import (
    Batch,
    Damage,
    Location,
    bodies_path,
    last_commit,
    last_hash,
    list_segments,
    read_segment,
)
from waypost.relay.state.relay_state import RelayState
from waypost.wire.events import (
    Accepted,
    AnyEvent,
    BodiesHash,
    BodyRef,
    Forwarded,
    Rejected,
    SettingsChanged,
    SignedCheckpoint,
)

OnSegment = Callable[[int, int], None]
OnBatch = Callable[[Batch, RelayState], None]

_CHUNK_BYTES = 1024 * 1024


class Gap(msgspec.Struct, frozen=True):
    """Damaged bytes, missing events, or both.

    Events `first_seq` to `last_seq` are missing: none if `first_seq` is above `last_seq`, an
    unknown number if `last_seq` is None. `torn` is an unfinished write at the end of the open
    segment.
    """

    segment: str
    first_seq: int
    last_seq: int | None
    damage: Damage | None = None
    torn: bool = False

    @property
    def loses_events(self) -> bool:
        """Whether confirmed events are lost."""
        return not self.torn and (self.last_seq is None or self.last_seq >= self.first_seq)


class BrokenBody(msgspec.Struct, frozen=True):
    """An arrival, whose line is at `location`, with a damaged large payload."""

    location: Location
    body: BodyRef


class ChangedBodies(msgspec.Struct, frozen=True):
    """Bytes of a segment's body file that are not those that were written with their batch."""

    segment: int
    bodies: BodiesHash

    def __str__(self) -> str:
        start, end = self.bodies.offset, self.bodies.offset + self.bodies.length
        return (
            f"bytes {start:,} to {end:,} are not those that the journal has the hash of:"
            " a large payload was changed"
        )

    def explains(self, broken: BrokenBody) -> bool:
        """Return whether a damaged payload is in these bytes."""
        start, at = self.bodies.offset, broken.body.offset
        return broken.location.segment == self.segment and 0 <= at - start < self.bodies.length


class JournalScan:
    """One pass over a journal; `on_batch` is called with the state after each batch."""

    def __init__(
        self,
        directory: Path,
        on_batch: OnBatch = lambda batch, state: None,
        since_us: int = 0,
    ) -> None:
        """Prepare to read a journal; segments that end before `since_us` are left out."""
        self.state = RelayState()
        self.segments = list_segments(directory)
        self.has_earlier = False
        """Whether segments were left out."""
        self.chain = ChainCheck(self._leave_out(since_us))
        self.events = 0
        self.gaps: list[Gap] = []
        self.misnumbered: list[str] = []
        self.broken_bodies: list[BrokenBody] = []
        self.changed_bodies: list[ChangedBodies] = []
        self.checkpoints: list[SignedCheckpoint] = []
        self.oldest_us = 0
        self.storage = ""
        """The `storage` setting of the last relay that wrote here; "" if unknown."""
        self._on_batch = on_batch
        self._bodies = BodyFiles(directory)
        self._expected = next(iter(self.segments), 1)
        self._damaged: list[Damage] = []

    def _leave_out(self, since_us: int) -> str:
        """Leave out segments that end before `since_us`; return the hash of their last batch."""
        head = ""
        for first_seq, path in list(self.segments.items())[:-1]:
            commit = last_commit(path)
            if commit is None or commit.at_us >= since_us:
                break
            head = last_hash(path, path.stat().st_size)
            del self.segments[first_seq]
            self.has_earlier = True
        return head

    @property
    def starts_at_seq(self) -> int:
        """The first event that is still in the journal."""
        return next(iter(self.segments), 1)

    def run(self, on_segment: OnSegment = lambda done, total: None) -> None:
        """Read everything; call `on_segment(done, total)` after each segment."""
        try:
            for done, (first_seq, path) in enumerate(self.segments.items(), start=1):
                for piece in read_segment(path, first_seq):
                    self.chain.note(piece)
                    if isinstance(piece, Damage):
                        self._damaged.append(piece)
                    else:
                        self._read_batch(piece)
                on_segment(done, len(self.segments))
            self._end()
        finally:
            self._bodies.close()

    def loses_events_before(self, seq: int) -> bool:
        """Return whether events up to `seq` are lost."""
        return any(gap.loses_events and gap.first_seq <= seq for gap in self.gaps)

    def _read_batch(self, batch: Batch) -> None:
        commit = batch.commit
        first_seq = commit.seq - commit.count + 1
        self._find_gaps(batch, first_seq)
        number, at_us = first_seq, 0
        for event, location in batch.events():
            if event.seq != number:
                self._misnumber(batch, f"event {event.seq} in place of event {number}")
            if isinstance(event, SignedCheckpoint):
                self._check_head(batch, event)
            number, at_us = number + 1, event.at_us
            self._check_event(event, location)
            self.state.apply(event, location)
        if number != commit.seq + 1:
            self._misnumber(batch, f"{number - first_seq} events instead of {commit.count}")
        if at_us != commit.at_us:
            self._misnumber(batch, "its commit line has another time than its last event")
        if commit.bodies is not None and not self._bodies.has(batch.segment, commit.bodies):
            self.changed_bodies.append(ChangedBodies(batch.segment, commit.bodies))
        self._expected = commit.seq + 1
        self._on_batch(batch, self.state)

    def _find_gaps(self, batch: Batch, first_seq: int) -> None:
        last_lost = first_seq - 1
        for damage in self._damaged:
            segment = self.segments[damage.segment].name
            self.gaps.append(Gap(segment, self._expected, last_lost, damage))
            self._expected = first_seq  # the first damage represents all lost events
        if self._expected <= last_lost and not self._damaged:
            segment = self.segments[batch.segment].name
            self.gaps.append(Gap(segment, self._expected, last_lost))
        elif self._expected > first_seq:
            self._misnumber(batch, f"events from {first_seq} on occur twice")
        self._damaged = []

    def _end(self) -> None:
        """Record damage at the end: an unfinished write, or a loss of unknown size."""
        for damage in self._damaged:
            path = self.segments[damage.segment]
            torn = damage.at_tail and path.suffix == ".open" and path == self._newest()
            self.gaps.append(Gap(path.name, self._expected, None, damage, torn))
        self._damaged = []

    def _newest(self) -> Path:
        return self.segments[next(reversed(self.segments))]

    def _check_event(self, event: AnyEvent, location: Location) -> None:
        if not self.events:
            self.oldest_us = event.at_us
        self.events += 1
        if isinstance(event, SettingsChanged):
            self.storage = str(event.settings.get("storage", ""))
        elif isinstance(event, Accepted | Rejected | Forwarded) and event.body is not None:
            self._check_body(location, event.body)

    def _check_head(self, batch: Batch, event: SignedCheckpoint) -> None:
        self.checkpoints.append(event)
        if event.head != batch.commit.prev:
            self._misnumber(batch, f"the checkpoint {event.seq} stands for another batch")

    def _check_body(self, location: Location, body: BodyRef) -> None:
        if not self._bodies.is_intact(location.segment, body):
            self.broken_bodies.append(BrokenBody(location, body))

    def _misnumber(self, batch: Batch, problem: str) -> None:
        name = self.segments[batch.segment].name
        self.misnumbered.append(f"{name}, batch at byte {batch.start:,}: {problem}")


class BodyFiles:
    """The body files of the segments, which hold large payloads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segment = -1
        self._descriptor = -1
        self._last: tuple[int, BodyRef, bool] | None = None

    def is_intact(self, segment: int, body: BodyRef) -> bool:
        """Return whether a payload is undamaged."""
        if self._last is None or self._last[:2] != (segment, body):
            self._last = (segment, body, self._check(segment, body))
        return self._last[2]

    def restore(self, segment: int, body: BodyRef, payload: bytes) -> bool:
        """Restore a payload, durably; return False if it is not the original."""
        if len(payload) != body.length or zlib.crc32(payload) != body.crc:
            return False
        path = bodies_path(self._directory, segment)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, payload, body.offset)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._last = None
        return True

    def close(self) -> None:
        """Close the open file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._segment = self._descriptor = -1

    def has(self, segment: int, bodies: BodiesHash) -> bool:
        """Return whether the bytes written with a batch are unchanged."""
        digest = sha256()
        for chunk in self._chunks(segment, bodies.offset, bodies.length):
            digest.update(chunk)
        return digest.hexdigest() == bodies.sha256

    def _check(self, segment: int, body: BodyRef) -> bool:
        crc = length = 0
        for chunk in self._chunks(segment, body.offset, body.length):
            crc, length = zlib.crc32(chunk, crc), length + len(chunk)
        return (length, crc) == (body.length, body.crc)

    def _chunks(self, segment: int, offset: int, length: int) -> Iterator[bytes]:
        """Yield the bytes of a part of a body file, as far as it has them."""
        if segment != self._segment:
            self.close()
            path = bodies_path(self._directory, segment)
            try:
                self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return
            self._segment = segment
        end = min(offset + length, os.fstat(self._descriptor).st_size)
        while 0 <= offset < end:
            chunk = os.pread(self._descriptor, min(_CHUNK_BYTES, end - offset), offset)
            yield chunk
            offset += len(chunk)
