"""Reads the journal from its first line to its last: checksums, event numbers, payloads.

A gap is damaged bytes, missing event numbers, or a torn end, which is no loss because nothing in
it was ever confirmed.
"""

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from waypost.relay.journal.segments import (
    Batch,
    Damage,
    Location,
    bodies_path,
    list_segments,
    read_segment,
)
from waypost.relay.state.relay_state import RelayState
from waypost.wire.events import Accepted, AnyEvent, BodyRef, Rejected, SettingsChanged

OnSegment = Callable[[int, int], None]
OnBatch = Callable[[Batch, RelayState], None]


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


class JournalScan:
    """One pass over a journal; `on_batch` is called with the state after each batch."""

    def __init__(self, directory: Path, on_batch: OnBatch = lambda batch, state: None) -> None:
        self.state = RelayState()
        self.segments = list_segments(directory)
        self.events = 0
        self.gaps: list[Gap] = []
        self.misnumbered: list[str] = []
        self.broken_bodies: list[BrokenBody] = []
        self.oldest_us = 0
        self.storage = ""
        """The `storage` setting of the last relay that wrote here; "" if unknown."""
        self._on_batch = on_batch
        self._bodies = BodyFiles(directory)
        self._expected = next(iter(self.segments), 1)
        self._damaged: list[Damage] = []

    @property
    def starts_at_seq(self) -> int:
        """The first event that is still in the journal."""
        return next(iter(self.segments), 1)

    def run(self, on_segment: OnSegment = lambda done, total: None) -> None:
        """Read everything; call `on_segment(done, total)` after each segment."""
        try:
            for done, (first_seq, path) in enumerate(self.segments.items(), start=1):
                for piece in read_segment(path, first_seq):
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
        number = first_seq
        for event, location in batch.events():
            if event.seq != number:
                self._misnumber(batch, f"event {event.seq} in place of event {number}")
            number += 1
            self._check_event(event, location)
            self.state.apply(event, location)
        if number != commit.seq + 1:
            self._misnumber(batch, f"{number - first_seq} events instead of {commit.count}")
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
        elif isinstance(event, Accepted | Rejected) and event.body is not None:
            self._check_body(location, event.body)

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

    def _check(self, segment: int, body: BodyRef) -> bool:
        try:
            if segment != self._segment:
                self.close()
                path = bodies_path(self._directory, segment)
                self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._segment = segment
            payload = os.pread(self._descriptor, body.length, body.offset)
        except FileNotFoundError:
            return False
        return zlib.crc32(payload) == body.crc
