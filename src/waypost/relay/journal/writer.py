"""The thread that makes batches durable: write, sync, then show them in the mailboxes.

What takes neither a sync nor a look at mailboxes (`durability: async` with `storage: journal`) is a
copy into the system's memory. The event loop does that itself: waking a thread takes longer.

Failures and answers:
  disk full      the ballast is given back and the write completed, so what was decided is kept;
                 from then on the journal says it is `full` until there is room again
  still full     the batch is cut off the file and the relay stops: nothing is half-written
  sync failed    the same; no second sync is tried, which could succeed without the data being there
  seal failed    the batch before it was safe and is confirmed; the relay stops at the next one
"""

import errno
import logging
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from waypost.policy.bounds import ballast_bytes
from waypost.relay.data_dir import sync_directory, sync_file
from waypost.relay.journal.segments import bodies_path, segment_path

log = logging.getLogger("waypost.relay")

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

OnDone = Callable[["WriteJob", OSError | None], None]


class WriteJob(msgspec.Struct):
    """One batch on its way to disk. Offsets are where its bytes begin in the files.

    `after` runs in the writer's thread once the batch is safe. `disk_was_full` tells that the disk
    was full on the way.
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


class JournalWriter:
    """Takes jobs one by one, in order; `on_done` is called in the writer's thread."""

    def __init__(self, directory: Path, on_done: OnDone) -> None:
        self._directory = directory
        self._on_done = on_done
        self._jobs: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._segment = -1
        self._lines_fd = -1
        self._bodies_fd = -1
        self._failure: OSError | None = None
        self.ballast = Ballast(directory / "ballast")
        self._thread = threading.Thread(target=self._run, name="waypost-journal", daemon=True)
        self._thread.start()

    def submit(self, job: WriteJob) -> None:
        """Queue a job."""
        self._jobs.put(job)

    def is_quick(self, job: WriteJob) -> bool:
        """Whether a job is no more than copying bytes to files that are open: nothing to sync, to
        seal or to show. Only asked while no job is queued."""
        waits = job.sync or job.seal or job.after or job.segment != self._segment
        return not waits and (not job.bodies or self._bodies_fd >= 0)

    def perform(self, job: WriteJob) -> OSError | None:
        """Do a job in the thread of the caller; gives what went wrong."""
        try:
            self._perform(job)
        except OSError as problem:
            self._failure = problem
            return problem
        return None

    def stop(self) -> None:
        """Finish what is queued, then close the files."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._on_done(job, self.perform(job))
        try:
            self._close_files(sync=self._failure is None)
        except OSError as problem:
            log.error("journal: not synced when it was closed: %s", problem)

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
            except Exception:  # it only shows what is safe already
                log.exception("journal: what follows a commit went wrong")
        if job.seal:
            try:
                self._seal()
            except OSError as problem:
                if not job.lines:
                    raise
                self._failure = problem

    def _write(self, job: WriteJob) -> None:
        self._open(job)
        if job.bodies:
            self._append(job, self._bodies(job), job.bodies, job.bodies_offset)
            if job.sync:
                sync_file(self._bodies_fd)
        if job.lines:
            self._append(job, self._lines_fd, job.lines, job.offset)
            if job.sync:
                sync_file(self._lines_fd)

    def _truncate(self, job: WriteJob) -> None:
        """Leave nothing of a batch that nobody will be told is safe."""
        ends = ((self._lines_fd, job.offset), (self._bodies_fd, job.bodies_offset))
        for descriptor, end in ends:
            if descriptor >= 0 and self._segment == job.segment:
                try:
                    os.ftruncate(descriptor, end)
                except OSError as problem:
                    log.error("journal: an unconfirmed batch could not be cut off: %s", problem)

    def _append(self, job: WriteJob, descriptor: int, data: bytes | bytearray, offset: int) -> None:
        view, done = memoryview(data), 0
        while done < len(view):
            try:
                done += os.pwrite(descriptor, view[done:], offset + done)
            except OSError as problem:
                self._make_room(job, problem)

    def _make_room(self, job: WriteJob, problem: OSError) -> None:
        """Give the ballast back, or raise `problem` if that is no help."""
        if problem.errno not in FULL_DISK or not self.ballast.release():
            raise problem
        job.disk_was_full = True

    def _open(self, job: WriteJob) -> None:
        if job.segment == self._segment:
            return
        self._close_files(sync=True)
        path = segment_path(self._directory, job.segment, sealed=False)
        fresh = not path.exists()
        self._lines_fd = self._open_file(job, path)
        self._segment = job.segment
        if fresh:
            sync_directory(self._directory)

    def _bodies(self, job: WriteJob) -> int:
        if self._bodies_fd < 0:
            path = bodies_path(self._directory, self._segment)
            self._bodies_fd = self._open_file(job, path)
            sync_directory(self._directory)
        return self._bodies_fd

    def _open_file(self, job: WriteJob, path: Path) -> int:
        try:
            return _open_file(path)
        except OSError as problem:  # a new name may need room too
            self._make_room(job, problem)
            return _open_file(path)

    def _seal(self) -> None:
        self._close_files(sync=True)
        os.rename(
            segment_path(self._directory, self._segment, sealed=False),
            segment_path(self._directory, self._segment, sealed=True),
        )
        sync_directory(self._directory)
        self._segment = -1

    def _close_files(self, *, sync: bool) -> None:
        for descriptor in (self._bodies_fd, self._lines_fd):
            if descriptor >= 0:
                if sync:
                    sync_file(descriptor)
                os.close(descriptor)
        self._bodies_fd = self._lines_fd = -1


class Ballast:
    """A file that takes up room until the disk is full."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def release(self) -> bool:
        """Give the room back; False if it was given back before."""
        try:
            os.unlink(self._path)
        except OSError:
            return False
        return True

    def restore(self) -> bool:
        """Take the room again; False if there is not enough."""
        try:
            descriptor = _open_file(self._path)
            try:
                _allocate(descriptor, ballast_bytes)
            finally:
                os.close(descriptor)
        except OSError:
            self.release()
            return False
        return True


def _open_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    if os.fstat(descriptor).st_size < size:
        os.pwrite(descriptor, bytes(size), 0)
