"""The writer thread: writes and syncs batches, then updates the mailbox files.

A small batch without mailbox files (`storage: journal`) is written and synced by the event loop
itself while the disk is quick, because waking a thread twice takes longer; after one slow sync the
thread does it for a while. So it does in a served relay after frames have arrived during a sync:
those that arrive while the thread works share the next one.

Failures and answers:
  disk full      the ballast is released and the write completed, so no decision is lost; the
                 journal reports that it is `full` until there is room again
  no descriptor  or no memory to open a file: the batch waits until there is one, and publishes
                 are rejected meanwhile; files for the next segment are opened ahead of time
  still full     the batch is cut off the file and the relay stops: nothing is half-written
  sync failed    the same; a sync is never retried, because it could succeed without the data
  seal failed    the batch before it was durable and is confirmed; the relay stops at the next one
"""

import errno
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from waypost.policy.bounds import ballast_bytes, closed_ballast_bytes
from waypost.relay.data_dir import sync_file
from waypost.relay.errors import RelayStopped
from waypost.relay.journal.segment_files import NoDescriptor, SegmentFiles

log = logging.getLogger("waypost.relay")

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_RETRY_S = 0.1
_INLINE_SYNC_MAX_BYTES = 256 * 1024
_QUICK_SYNC_MAX_S = 0.005
_SYNCS_IN_THREAD = 200
"""As many syncs are done by the thread after one that held up the event loop."""
_JUST_SYNCED_S = 0.0001
"""A frame that is read this soon after a sync in the event loop arrived during the sync."""

_BALLAST_MIN_BYTES = 64 * 1024

OnDone = Callable[["WriteJob", OSError | RelayStopped | None], None]


class WriteJob(msgspec.Struct):
    """One batch to write. The offsets are those of its first bytes in the two files.

    `after` runs in the writer thread once the batch is durable. `disk_was_full` is set if the
    ballast had to be released, `has_waited` if no descriptor was free, `problem` if it failed in
    the thread that submitted it.
    """

    segment: int
    offset: int
    bodies_offset: int
    lines: bytearray
    bodies: bytes
    sync: bool
    seal: bool
    after: list[Callable[[], None]]
    disk_was_full: bool = False
    has_waited: bool = False
    problem: OSError | None = None


class Writer(Protocol):
    """What a journal needs of its writer; see `JournalWriter`."""

    is_replicated: bool

    @property
    def ballast(self) -> "Ballast": ...

    def submit(self, job: WriteJob) -> bool: ...

    def note_arrival(self) -> None: ...

    def stop(self) -> None: ...


MakeWriter = Callable[[Path, OnDone, Callable[[], None]], Writer]


class JournalWriter:
    """Performs jobs one by one, in order.

    `on_done` is called in the writer thread after each that it performs, `on_waiting` when one has
    to wait for a descriptor. Without `syncs_inline`, the writer thread performs all that sync.
    """

    is_replicated = False

    def __init__(
        self,
        directory: Path,
        on_done: OnDone,
        on_waiting: Callable[[], None],
        *,
        syncs_inline: bool = True,
    ) -> None:
        self._syncs_inline = syncs_inline
        self._on_done = on_done
        self._on_waiting = on_waiting
        self._jobs: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._files = SegmentFiles(directory)
        self._failure: OSError | None = None
        self._unsynced: OSError | None = None
        self._syncs_in_thread = 0
        self._synced_here = 0.0
        self.ballast = Ballast(directory)
        self._thread = threading.Thread(target=self._run, name="waypost-journal", daemon=True)
        self._thread.start()

    def submit(self, job: WriteJob) -> bool:
        """Perform a job if it is quick, or queue it; return whether it is done, or has failed.

        Submit one after the other is done.
        """
        if not self._is_quick(job):
            self._jobs.put(job)
            return False
        begin = time.perf_counter()
        job.problem = self._try(job)
        if job.sync:
            self._synced_here = time.perf_counter()
            if self._synced_here - begin > _QUICK_SYNC_MAX_S:
                self._syncs_in_thread = _SYNCS_IN_THREAD
        return True

    def note_arrival(self) -> None:
        """Have the thread do the next syncs if the calling thread has synced a moment ago: what
        arrives now was there before that sync was done, and could have shared it."""
        if time.perf_counter() - self._synced_here < _JUST_SYNCED_S:
            self._syncs_in_thread = _SYNCS_IN_THREAD

    def stop(self) -> None:
        """Finish the queued jobs, then close the files. Raises `OSError` if they cannot be synced,
        unless the journal had failed before."""
        self._stopping.set()
        self._jobs.put(None)
        self._thread.join()
        if self._unsynced is not None:
            raise self._unsynced

    def _is_quick(self, job: WriteJob) -> bool:
        """Return whether a job only appends to open files, and syncs little on a quick disk: that
        takes less time than waking the thread."""
        files = self._files
        if job.seal or job.after or job.segment != files.segment:
            return False
        if job.bodies and files.bodies < 0:
            return False
        if not job.sync:
            return True
        self._syncs_in_thread -= self._syncs_in_thread > 0
        small = len(job.lines) + len(job.bodies) <= _INLINE_SYNC_MAX_BYTES
        return small and not self._syncs_in_thread and self._syncs_inline

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._on_done(job, self._try(job))
        try:
            self._files.close(sync=self._failure is None)
        except OSError as problem:
            log.error("journal: final sync failed: %s", problem)
            self._unsynced = problem
        self._files.close_spares()

    def _try(self, job: WriteJob) -> OSError | None:
        try:
            self._perform(job)
        except OSError as problem:
            self._failure = problem
            return problem
        return None

    def _perform(self, job: WriteJob) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            self._write(job)
        except OSError:
            self._truncate(job)
            raise
        for act in job.after:
            try:
                act()
            except Exception:  # the batch is durable; only its mailbox files lag behind
                log.exception("journal: a callback after a commit failed")
        if job.seal:
            try:
                self._files.seal()
            except OSError as problem:
                if not job.lines:
                    raise
                self._failure = problem
        self._files.replenish()

    def _write(self, job: WriteJob) -> None:
        files = self._files
        if files.segment != job.segment:
            self._open(job, lambda: files.open(job.segment))
        if job.bodies:
            self._open(job, files.open_bodies)
            self._append(job, files.bodies, job.bodies, job.bodies_offset)
            if job.sync:
                sync_file(files.bodies)
        if job.lines:
            self._append(job, files.lines, job.lines, job.offset)
            if job.sync:
                sync_file(files.lines)

    def _truncate(self, job: WriteJob) -> None:
        """Remove a batch that will not be confirmed from the files."""
        files = self._files
        ends = ((files.lines, job.offset), (files.bodies, job.bodies_offset))
        for descriptor, end in ends:
            if descriptor >= 0 and files.segment == job.segment:
                try:
                    os.ftruncate(descriptor, end)
                except OSError as problem:
                    log.error("journal: cannot truncate an unconfirmed batch: %s", problem)

    def _append(self, job: WriteJob, descriptor: int, data: bytes | bytearray, offset: int) -> None:
        view, done = memoryview(data), 0
        while done < len(view):
            try:
                done += os.pwrite(descriptor, view[done:], offset + done)
            except OSError as problem:
                self._make_room(job, problem)

    def _make_room(self, job: WriteJob, problem: OSError) -> None:
        """Release the ballast, or raise `problem` if that does not help."""
        if problem.errno not in FULL_DISK or not self.ballast.release():
            raise problem
        job.disk_was_full = True

    def _open(self, job: WriteJob, open_files: Callable[[], None]) -> None:
        """Open files; wait while the process has no descriptor for them."""
        while True:
            try:
                open_files()
                return
            except NoDescriptor as problem:
                if not job.has_waited:
                    job.has_waited = True
                    log.error("journal: waiting until a file can be opened: %s", problem)
                    self._on_waiting()
                if self._stopping.wait(_RETRY_S):
                    raise
            except OSError as problem:  # a new directory entry may need room too
                self._make_room(job, problem)


def stopped_by(problem: OSError) -> RelayStopped:
    """Return the error of a relay whose journal could not be written."""
    return RelayStopped(
        f"the journal could not be written ({problem.strerror}); unconfirmed events are lost:"
        " repair the disk or free space, then open the relay again",
        full=problem.errno in FULL_DISK,
    )


class Ballast:
    """A file that reserves space, released when the disk is full, and while a relay is opened."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "ballast"

    def release(self) -> bool:
        """Delete the file; return False if it did not exist."""
        try:
            os.unlink(self._path)
        except OSError:
            return False
        return True

    def restore(self) -> bool:
        """Reserve the space again; return False if there is not enough."""
        return self._reserve(ballast_bytes)

    def shrink(self) -> None:
        """Reserve what it takes to open the directory again on a full disk, or what is left."""
        size = closed_ballast_bytes
        while size >= _BALLAST_MIN_BYTES and not self._reserve(size):
            size //= 2

    def _reserve(self, size: int) -> bool:
        """Give the file this size; delete it and return False if there is not enough space."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _allocate(descriptor, size)
            finally:
                os.close(descriptor)
        except OSError:
            self.release()
            return False
        return True


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    elif os.fstat(descriptor).st_size < size:
        os.pwrite(descriptor, bytes(size), 0)
    os.ftruncate(descriptor, size)
