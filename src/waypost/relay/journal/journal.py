"""The journal: appends events, and makes many of them durable with one sync.

Rule 1  Events are written in the order they are appended; a batch is durable as a whole or lost
        as a whole.
Rule 2  Group commit: everything queued when the writer becomes free is written together.
Rule 3  After a write or sync has failed for good, no more events are accepted.
Rule 4  Numbers are consecutive, and times never go back.
Rule 5  Events that no one waits for are written with the next that someone waits for, or a few
        milliseconds later.
Rule 6  Each batch names the hash of the batch before it, across segments and restarts.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from waypost.policy.bounds import batch_max_bytes, batch_max_events
from waypost.policy.settings import Settings
from waypost.relay.errors import RelayStopped
from waypost.relay.journal.listeners import CommitListeners
from waypost.relay.journal.segments import Location, Position, bodies_path
from waypost.relay.journal.writer import JournalWriter, MakeWriter, WriteJob, stopped_by
from waypost.wire.events import (
    Accepted,
    AnyEvent,
    BodyRef,
    Commit,
    Forwarded,
    Rejected,
    encode_event,
    encode_event_into,
    event_count,
)
from waypost.wire.journal_batches import NO_BATCH, batch_hash, bodies_hash

_DISK_FULL = "the disk of the relay is full"
_NO_DESCRIPTOR = "the relay has no free file descriptor: try again later"
_UNAWAITED_MAX_S = 0.005
"""The time that a batch which no one waits for may stay open."""


class PendingBatch:
    """Events that will be written together, and the futures waiting for them.

    `seq` is the number of the last event before it, `last_seq` the highest number it may reach.
    `room` is the number of bytes its lines may have; it shrinks with the bytes in `bodies`. It
    `is_awaited` once it has an event, or a future, that should be durable soon.
    """

    __slots__ = (
        "after", "bodies", "is_awaited", "job", "last_seq", "lines", "position", "room", "seq",
        "waiters",
    )  # fmt: skip

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.last_seq = seq + batch_max_events
        self.room = batch_max_bytes
        self.is_awaited = False
        self.lines = bytearray()
        self.bodies: list[bytes] = []
        self.after: list[Callable[[], None]] = []
        self.waiters: list[asyncio.Future[None]] = []
        self.job: WriteJob | None = None
        self.position = Position()


class Journal:
    """Appends to the segments of one data directory. Belongs to one event loop."""

    def __init__(
        self,
        directory: Path,
        position: Position,
        settings: Settings,
        listeners: CommitListeners,
        head: str = NO_BATCH,
        make_writer: MakeWriter = JournalWriter,
    ) -> None:
        """Continue after `position`, at the end of the batch with the hash `head`."""
        self.settings = settings
        self.listeners = listeners
        self.shares_syncs = False
        """Whether events may arrive during a sync, which should then share the next one."""
        self.full = False
        """Whether publishes are rejected: the disk is full, or no descriptor is free."""
        self.full_because = ""
        self.failure: RelayStopped | None = None
        self.failed = asyncio.Event()
        self.committed = position
        self.commits = 0
        self.head = head
        """The hash of the last closed batch, which the next one names."""
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._seq = position.seq
        self._segment = position.segment or position.seq + 1
        self._offset = position.offset
        self._segment_at_us = self._last_at_us = position.at_us
        self._bodies_offset = self._bodies_size()
        self._last_body: tuple[bytes, BodyRef] | None = None
        self._batch: PendingBatch | None = None
        self._closed: list[PendingBatch] = []
        self._writing: PendingBatch | None = None
        self._flush_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        """Ends the wait of an open batch that began without an awaited event."""
        self._inline_result: tuple[asyncio.Handle, WriteJob] | None = None
        """A batch written in this thread, until `_done` is called with it."""
        self._writer = make_writer(directory, self._done_in_thread, self._waiting_in_thread)
        self._disk_full = not self._writer.ballast.restore()
        self._set_full(waiting=False)

    def append(self, event: AnyEvent, body: bytes | None = None) -> Location:
        """Number and queue an event; return the location its line will have.

        `body` is a large payload, which the arrival then refers to. Several arrivals of one
        publish may pass the same object: it is written once per segment.
        """
        batch = self._batch
        if batch is None or len(batch.lines) >= batch.room or self._seq >= batch.last_seq:
            batch = self._open_batch(event.at_us)
        if not batch.is_awaited:
            self._await_batch(batch)
        if body is not None and isinstance(event, Accepted | Rejected | Forwarded):
            event.body = self._append_body(batch, body)
        self._seq = event.seq = self._seq + 1
        event.at_us = max(event.at_us, self._last_at_us)
        self._last_at_us = event.at_us
        lines = batch.lines
        begin = len(lines)
        encode_event_into(event, lines, begin)
        length = len(lines) - begin
        lines += b"\n"
        return Location(self._segment, self._offset + begin, length)

    def append_all(self, events: Sequence[AnyEvent], *, is_awaited: bool = True) -> None:
        """Number and queue events whose locations are not needed; all go into one batch.

        Those that are not awaited are written a little later, unless a caller of `barrier` waits.
        """
        last = events[-1]
        batch = self._batch
        if batch is None or len(batch.lines) >= batch.room or self._seq >= batch.last_seq:
            batch = self._open_batch(last.at_us)
            if not is_awaited:
                self._timer = self._loop.call_later(_UNAWAITED_MAX_S, self._await_batch, batch)
        if is_awaited and not batch.is_awaited:
            self._await_batch(batch)
        seq, at_us, lines = self._seq, self._last_at_us, batch.lines
        for event in events:
            event.seq = seq = seq + event_count(event)
            event.at_us = at_us = max(event.at_us, at_us)
            encode_event_into(event, lines, -1)
            lines += b"\n"
        self._seq, self._last_at_us = seq, at_us

    def after_commit(self, act: Callable[[], None]) -> None:
        """Run `act` in the writer thread once the event just appended is durable."""
        assert self._batch is not None
        self._batch.after.append(act)

    @property
    def busy(self) -> bool:
        """Whether any event is not durable yet."""
        return self._last_batch() is not None

    def barrier(self) -> "asyncio.Future[None] | None":
        """Return a future that is done once every event so far is durable; None if it is.

        Each caller gets its own future, so that cancelling one does not affect the others.
        """
        if self.failure is not None:
            raise self.failure
        batch = self._last_batch()
        if batch is None:
            return None
        if not batch.is_awaited:
            self._await_batch(batch)
        waiter: asyncio.Future[None] = self._loop.create_future()
        batch.waiters.append(waiter)
        return waiter

    def unconfirmed(self) -> "asyncio.Future[None] | None":
        """Return a future to await before a delivery (`replicated`); None if there is no need."""
        return self.barrier() if self._writer.is_replicated else None

    async def sync(self) -> None:
        """Wait until every event so far is durable."""
        waiting = self.barrier()
        if waiting is not None:
            await waiting

    def flush_now(self) -> None:
        """Flush queued batches synchronously where no writer thread is needed.

        Callbacks of the commit run inside this call: use it only where an `await` would be safe.
        """
        if self._batch is not None:
            self._batch.is_awaited = True
        self._flush()
        while self._inline_result is not None:
            handle, job = self._inline_result
            handle.cancel()
            self._done(job, job.problem)

    @property
    def segment(self) -> int:
        """The first seq of the segment being written."""
        return self._segment

    def segment_age_us(self, now_us: int) -> int:
        """Return how long the current segment has been open; 0 if it is empty."""
        return now_us - self._segment_at_us if self._offset else 0

    def seal(self) -> None:
        """Seal the current segment unless it is empty; later events go into a new one."""
        if self._batch is not None:
            self.close_batch(seal=True)
        elif self._offset:
            batch = PendingBatch(self._seq)
            batch.position = Position(self._seq, self._last_at_us)
            self._finish(batch, seal=True)

    def restore_ballast(self) -> bool:
        """Restore the ballast after a full disk; return whether there was room for it."""
        if not self._disk_full or not self._writer.ballast.restore():
            return False
        self._disk_full = False
        self._set_full(waiting=self._waiting)
        return True

    async def close(self) -> None:
        """Make every event durable, and close the files. Raises `OSError` if that fails."""
        try:
            await self.sync()
        except RelayStopped:
            pass
        try:
            await self._loop.run_in_executor(None, self._writer.stop)
        finally:
            self._writer.ballast.shrink()

    def _append_body(self, batch: PendingBatch, payload: bytes) -> BodyRef:
        if self._last_body is not None and self._last_body[0] is payload:
            return self._last_body[1]
        reference = BodyRef(self._bodies_offset, len(payload), zlib.crc32(payload))
        batch.bodies.append(payload)
        batch.room -= len(payload)
        self._bodies_offset += len(payload)
        self._last_body = (payload, reference)
        return reference

    def _last_batch(self) -> PendingBatch | None:
        return self._batch or (self._closed[-1] if self._closed else self._writing)

    def _open_batch(self, at_us: int) -> PendingBatch:
        """Open a batch for an event of `at_us`, closing the full one before it."""
        self.close_batch()
        if self.failure is not None:
            raise self.failure
        if not self._offset:
            self._segment_at_us = at_us
        self._batch = PendingBatch(self._seq)
        return self._batch

    def _await_batch(self, batch: PendingBatch) -> None:
        """Have a batch written as soon as the disk is free."""
        batch.is_awaited = True
        if self.shares_syncs:
            self._writer.note_arrival()
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._writing is not None:
            return
        if not self._closed and self._batch is not None and self._batch.is_awaited:
            self.close_batch()
        if self._closed and self._writing is None:
            self._submit()

    def close_batch(self, *, seal: bool = False) -> None:
        """Close the open batch, if there is one: `head` then stands for every event so far."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch.position = Position(self._seq, self._last_at_us)
        commit = Commit(
            seq=self._seq,
            at_us=self._last_at_us,
            count=self._seq - batch.seq,
            bytes=len(batch.lines),
            crc=zlib.crc32(batch.lines),
            prev=self.head,
            bodies=bodies_hash(batch.bodies, self._bodies_offset),
        )
        batch.lines += encode_event(commit) + b"\n"
        self.head = batch_hash(batch.lines)
        self._finish(batch, seal=seal)

    def _finish(self, batch: PendingBatch, *, seal: bool) -> None:
        end = self._offset + len(batch.lines)
        keep = self.settings.housekeeping
        age_ms = (batch.position.at_us - self._segment_at_us) // 1000
        seal = seal or end >= keep.segment_max_bytes or age_ms >= keep.segment_max_age_ms
        bodies = b"".join(batch.bodies)
        batch.job = WriteJob(
            segment=self._segment,
            offset=self._offset,
            bodies_offset=self._bodies_offset - len(bodies),
            lines=batch.lines,
            bodies=bodies,
            sync=self.settings.durability == "fsync",
            seal=seal,
            after=batch.after,
        )
        at = batch.position
        batch.position = Position(at.seq, at.at_us, self._segment, end)
        self._offset = end
        if seal:
            self._segment, self._offset, self._bodies_offset = self._seq + 1, 0, 0
            self._last_body = None
            batch.position = Position(at.seq, at.at_us, self._segment, 0)
        self._closed.append(batch)
        self.listeners.batch_closed(batch.position)
        if self._writing is None:
            self._submit()

    def _submit(self) -> None:
        self._writing = self._closed.pop(0)
        job = self._writing.job
        assert job is not None
        if self._writer.submit(job):
            handle = self._loop.call_soon(self._done, job, job.problem)
            self._inline_result = (handle, job)

    def _waiting_in_thread(self) -> None:
        self._loop.call_soon_threadsafe(lambda: self._set_full(waiting=True))

    def _set_full(self, *, waiting: bool) -> None:
        """Reject publishes while the disk is full or the writer waits for a descriptor."""
        self._waiting = waiting
        self.full = waiting or self._disk_full
        self.full_because = _NO_DESCRIPTOR if waiting else _DISK_FULL if self.full else ""

    def _done_in_thread(self, job: WriteJob, problem: OSError | RelayStopped | None) -> None:
        self._loop.call_soon_threadsafe(self._done, job, problem)

    def _done(self, job: WriteJob, problem: OSError | RelayStopped | None) -> None:
        batch = self._writing
        assert batch is not None
        self._writing = self._inline_result = None
        if problem is not None:
            self._fail(batch, problem)
            return
        if job.disk_was_full or job.has_waited:
            self._disk_full = self._disk_full or job.disk_was_full
            self._set_full(waiting=False)
        self.committed = batch.position
        self.commits += 1
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.listeners.committed()
        if self._closed:
            self._submit()
        elif self._batch is not None and self._batch.is_awaited:
            self.close_batch()

    def _fail(self, batch: PendingBatch, problem: OSError | RelayStopped) -> None:
        self.failure = problem if isinstance(problem, RelayStopped) else stopped_by(problem)
        for lost in (batch, *self._closed, self._batch):
            for waiter in lost.waiters if lost is not None else ():
                if not waiter.done():
                    waiter.set_exception(self.failure)
        self._closed.clear()
        self._batch = None
        self.failed.set()

    def _bodies_size(self) -> int:
        path = bodies_path(self._directory, self._segment)
        return path.stat().st_size if path.exists() else 0
