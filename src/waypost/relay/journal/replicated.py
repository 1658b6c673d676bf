"""The writer of a replicated journal: each batch into the local segment and into the shared log.

Rule 1  A batch is confirmed after both writes. They are done at the same time, one batch after
        the other.
Rule 2  Each append expects the end that this node knows. If the log ends with a batch of somebody
        else, this node is not the owner any more: the journal fails, and nothing is confirmed.
Rule 3  A message is delivered after its lease is confirmed: before, another node may own the
        mailbox already, and deliver it, too.
Rule 4  A segment is sealed, and callbacks run, after the batch is in the log, because neither can
        be undone.

Failures and answers:
  the outcome is unknown   the tail is read: it has the batch, and it is done; it has not changed,
                           and the same bytes are appended again; else this node is fenced
  the log does not answer  the journal fails; whether the batch is in the log shows when a node
                           takes over
  the disk fails           the journal fails; the batch may be in the log
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from waypost.relay.errors import LogUnavailable, NotOwner, RelayError, RelayStopped
from waypost.relay.journal.confirmed import Confirmed, ConfirmedMark
from waypost.relay.journal.file_log import commit_of
from waypost.relay.journal.log import Appended, Header, Log, Record, Tail, hash_of
from waypost.relay.journal.writer import JournalWriter, OnDone, WriteJob

log = logging.getLogger("waypost.relay")

_ATTEMPTS_MAX = 5


class Ownership(NamedTuple):
    """What it takes to own a partition: its log, folded up to `tail`, and the owner's address.

    A relay that is opened with it writes an `owner` event first. If that is confirmed, it owns.
    """

    log: Log
    tail: Tail
    node: str
    address: str = ""

    @property
    def epoch(self) -> int:
        """The epoch that begins with this owner."""
        return self.tail.epoch + 1

    def make_writer(
        self, directory: Path, on_done: OnDone, on_waiting: Callable[[], None]
    ) -> "ReplicatedWriter":
        """Return the writer of the relay's journal."""
        return ReplicatedWriter(self, directory, on_done, on_waiting)


class ReplicatedWriter:
    """Has the interface of `JournalWriter`. Belongs to one event loop."""

    is_replicated = True

    def __init__(
        self,
        ownership: Ownership,
        directory: Path,
        on_done: OnDone,
        on_waiting: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_done = on_done
        self._log, self._node, self._epoch = ownership.log, ownership.node, ownership.epoch
        self._position, self._hash = ownership.tail.position, ownership.tail.hash
        # A sync in the event loop would hold up the append.
        self._local = JournalWriter(directory, self._done_in_thread, on_waiting, syncs_inline=False)
        self._mark = ConfirmedMark(directory)
        self._seq = self._mark.last.seq
        self._written: asyncio.Future[OSError | RelayStopped | None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure: OSError | RelayStopped | None = None
        self.ballast = self._local.ballast

    def submit(self, job: WriteJob) -> bool:
        """Write a batch, and return False; `on_done` is called once it is confirmed, or has
        failed."""
        self._task = self._loop.create_task(self._perform(job))
        return False

    def note_arrival(self) -> None:
        """Do nothing: no sync is done by the calling thread."""

    def stop(self) -> None:
        """Finish the local write, then close the files. Raises `OSError` as `JournalWriter`."""
        try:
            self._local.stop()
        finally:
            self._mark.close()

    async def _perform(self, job: WriteJob) -> None:
        if self._failure is None:
            self._failure = await self._replicate(job)
        self._on_done(job, self._failure)

    async def _replicate(self, job: WriteJob) -> OSError | RelayStopped | None:
        """Write a batch to both; return why it is not confirmed, if it is not."""
        record = self._record(job)
        part = msgspec.structs.replace(job, seal=False, after=[])
        written = self._write(part) if job.lines else None
        problem: OSError | RelayStopped | None = None
        try:
            self._position = await self._append(record)
        except RelayStopped as stopped:
            problem = stopped
        except RelayError as unusable:
            problem = RelayStopped(str(unusable))
        except Exception as failed:  # a batch without an end would hold up its callers for ever
            log.exception("journal: the replicated log failed")
            problem = RelayStopped(f"the replicated log failed: {failed}")
        if written is not None:
            problem = await written or problem
            job.disk_was_full, job.has_waited = part.disk_was_full, part.has_waited
        return problem or await self._confirm(job, record)

    async def _confirm(self, job: WriteJob, record: Record) -> OSError | RelayStopped | None:
        """Do what must not happen before a batch is in the log."""
        self._hash = record.header.hash
        if job.lines:
            self._seq = commit_of(record).seq
        end = job.offset + len(record.lines)
        try:
            self._mark.set(
                Confirmed(self._position, self._hash, self._seq, job.segment, end, job.seal)
            )
        except OSError as problem:
            return problem
        if job.seal:
            only_seal = WriteJob(
                job.segment, end, 0, bytearray(), b"", sync=False, seal=True, after=[]
            )
            if (failed := await self._write(only_seal)) is not None:
                return failed
        for act in job.after:
            try:
                await asyncio.to_thread(act)
            except Exception:  # the batch is confirmed; only what follows from it lags behind
                log.exception("journal: a callback after a commit failed")
        return None

    def _record(self, job: WriteJob) -> Record:
        header = Header(
            job.segment,
            job.offset,
            job.bodies_offset,
            job.seal,
            hash=hash_of(job.lines) if job.lines else self._hash,
            prev=self._hash,
            epoch=self._epoch,
            node=self._node,
        )
        return Record(header, bytes(job.lines), job.bodies)

    async def _append(self, record: Record) -> int:
        """Append a record, and return its position. Raise `NotOwner` or `LogUnavailable`."""
        expected = self._position
        why = ""
        for _ in range(_ATTEMPTS_MAX):
            outcome = await self._log.append(expected, record)
            if isinstance(outcome, Appended):
                return outcome.position
            tail = await self._log.tail()
            if tail.header is not None and tail.header.is_same(record.header):
                return tail.position
            if tail.hash != record.header.prev:
                raise _fenced(self._node, tail)
            expected, why = tail.position, str(outcome)
        raise LogUnavailable(
            f"the replicated log did not confirm a batch in {_ATTEMPTS_MAX} attempts ({why}):"
            " check that its servers are running and can reach each other"
        )

    def _write(self, part: WriteJob) -> "asyncio.Future[OSError | RelayStopped | None]":
        """Write to the local segment, or only seal it."""
        self._written = written = self._loop.create_future()
        if self._local.submit(part):
            written.set_result(part.problem)
        return written

    def _done_in_thread(self, part: WriteJob, problem: OSError | RelayStopped | None) -> None:
        assert self._written is not None
        self._loop.call_soon_threadsafe(self._written.set_result, problem)


def _fenced(node: str, tail: Tail) -> NotOwner:
    owner = tail.header.node if tail.header is not None else ""
    if owner and owner != node:
        return NotOwner(
            f"this partition is owned by {owner} since epoch {tail.epoch}: ask it there"
        )
    return NotOwner(
        "the replicated log does not end where this node left it: the node gives up the partition,"
        " and compares its copy before it takes over again"
    )
