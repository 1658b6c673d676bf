"""Checkpoints: keep the index up to date, a little behind the journal and never ahead of it.

Changes are taken when a batch is closed, because then the state is exactly what the journal will
hold. They are written by a thread once that batch is durable.
"""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor

from waypost.relay.data_dir import DataDir
from waypost.relay.journal.journal import Journal
from waypost.relay.journal.segments import Position
from waypost.relay.state.index import Changes, Index, all_messages, take_changes
from waypost.relay.state.relay_state import RelayState
from waypost.relay.state.remembered import write_remembered

log = logging.getLogger("waypost.relay")

_CHANGED_MESSAGES_MAX = 50_000
_INTERVAL_S = 5.0


class Checkpoints:
    """Writes changes of the state into the index."""

    def __init__(self, index: Index, state: RelayState, journal: Journal) -> None:
        self._index = index
        self._state = state
        self._journal = journal
        self._thread = ThreadPoolExecutor(1, "waypost-index")
        self._taken: Changes | None = None
        self._in_flight: Changes | None = None
        self._writing: asyncio.Future[None] | None = None
        self._last = time.monotonic()
        self._replace_all = False
        self._forget_before_us = 0
        self.problem = ""
        self._writing_seq = self._written_seq = (index.position() or Position()).seq
        journal.listeners.on_batch_closed(self._batch_closed)
        journal.listeners.on_commit(self._committed)

    def _committed(self) -> None:
        """Start writing the taken changes if their batch is durable."""
        taken = self._taken
        if taken is None or self._writing or taken.position.seq > self._journal.committed.seq:
            return
        self._taken, self._in_flight = None, taken
        self._writing_seq = taken.position.seq
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._thread, self._write, taken)
        self._writing.add_done_callback(self._written)

    def write_if_idle(self) -> None:
        """Write a checkpoint now, unless one is being written or a batch is open.

        One that could not be written before is tried again.
        """
        if self._journal.failure is not None:
            return  # the state has events that the journal lost
        under_way = self._journal.busy or self._taken is not None or self._writing is not None
        if not under_way and (self._replace_all or self._journal.committed.seq > self._written_seq):
            self._take(self._journal.committed)
        self._committed()

    async def rebuild(self) -> int:
        """Rewrite the whole index; return the number of messages."""
        self._replace_all = True
        while self._replace_all:  # until everything could be taken at once
            await self._journal.sync()
            await self._wait_until_written()
            self.write_if_idle()
        await self._wait_until_written()
        return sum(1 for _ in all_messages(self._state))

    def remember(self, data: DataDir) -> "asyncio.Future[None]":
        """Start writing what the journal will forget; see `remembered`."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, write_remembered, data)

    def forget_duplicates(self, before_us: int) -> None:
        """Drop duplicate ids recorded before `before_us` with the next checkpoint."""
        self._forget_before_us = before_us

    @property
    def written_seq(self) -> int:
        """The last event that is certainly in the index."""
        return self._written_seq

    async def finish(self) -> None:
        """Write a last checkpoint; no event may be recorded meanwhile."""
        await self._wait_until_written()
        self.write_if_idle()
        await self._wait_until_written()

    def stop(self) -> None:
        """Stop the thread after its current write."""
        self._thread.shutdown()

    async def _wait_until_written(self) -> None:
        """Wait until all changes taken so far are written."""
        self._committed()
        while self._writing is not None:
            await asyncio.wait([self._writing])
            await asyncio.sleep(0)  # lets `_written` run, which may start the next write

    def _batch_closed(self, position: Position) -> None:
        if self._taken is not None or self._writing is not None:
            return
        due = time.monotonic() - self._last >= _INTERVAL_S
        if due or self._replace_all or len(self._state.dirty) >= _CHANGED_MESSAGES_MAX:
            self._take(position)

    def _take(self, position: Position) -> None:
        self._taken = take_changes(self._state, position, replace_all=self._replace_all)
        self._taken.forget_before_us, self._forget_before_us = self._forget_before_us, 0
        self._replace_all = False
        self._last = time.monotonic()

    def _write(self, changes: Changes) -> None:
        """Write changes, in the thread."""
        last_seen, duplicates = self._state.last_seen, self._state.duplicates
        last_seen.filter(changes.last_seen)
        duplicates.filter(changes.duplicates)
        duplicates.forget(changes.forget_before_us, changes.position.at_us)
        self._index.write(changes)

    def _written(self, done: asyncio.Future[None]) -> None:
        self._writing = None
        changes, self._in_flight = self._in_flight, None
        problem = done.exception()
        if problem is None:
            self._state.last_seen.end_flush()
            self._state.duplicates.end_flush()
            self.problem = ""
            self._written_seq = self._writing_seq
            self._committed()
            return
        # Nothing is lost: an index that falls behind only makes the next start slower. The same
        # changes are retried before newer ones, because a checkpoint includes all before it.
        self._taken = changes
        self.problem = f"index not written: {problem}"
        log.warning("%s", self.problem, exc_info=problem)
