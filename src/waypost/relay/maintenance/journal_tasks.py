"""Maintenance of the journal: seals segments open for too long, deletes those no longer needed.

Before segments are deleted, a thread writes what only they hold: see `state.remembered`.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from waypost.policy.settings import Settings
from waypost.relay.data_dir import DataDir
from waypost.relay.journal.line_index import index_path
from waypost.relay.journal.segments import bodies_path, last_commit, list_segments
from waypost.relay.state.checkpoints import Checkpoints
from waypost.relay.state.directories import journaled_directory
from waypost.relay.state.index import indexed_messages
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.remembered import remembered_path
from waypost.wire.events import EndpointChanged

log = logging.getLogger("waypost.relay")


class JournalTasks:
    """Seals and deletes journal segments."""

    def __init__(
        self,
        ledger: Ledger,
        checkpoints: Checkpoints,
        data: DataDir,
        settings: Callable[[], Settings],
    ) -> None:
        self._ledger = ledger
        self._checkpoints = checkpoints
        self._data = data
        self._directory = data.journal
        self._settings = settings
        self._oldest_us = 0
        """The time of the oldest sealed segment's last event; 0 while unknown."""
        self._remembering: asyncio.Future[None] | None = None

    async def quiet(self) -> None:
        """Wait until no deletion is under way."""
        while self._remembering is not None:
            await asyncio.wait([self._remembering])
            await asyncio.sleep(0)  # lets the deletion begin

    def seal(self, now_us: int) -> None:
        """Seal a segment that has been open for too long."""
        age_us = self._ledger.journal.segment_age_us(now_us)
        if age_us >= self._settings().housekeeping.segment_max_age_ms * 1000:
            self._ledger.journal.seal()

    def drop(self, now_us: int) -> None:
        """Delete sealed segments past their retention that no message and no index needs."""
        cutoff_us = now_us - self._settings().housekeeping.journal_retention_ms * 1000
        if self._oldest_us >= cutoff_us or self._remembering is not None:
            return
        segments = list(list_segments(self._directory).items())
        sealed = [path for _, path in segments if path.suffix == ".jsonl"]
        if segments and segments[0][0] > 1 and not remembered_path(self._data).exists():
            self._remember([], 0)  # an older version deleted segments
            return
        if not sealed:
            return
        self._oldest_us = _end_us(sealed[0])
        if self._oldest_us >= cutoff_us:
            return
        unneeded = self._unneeded(segments)
        dropped = [(path, following) for path, following in unneeded if _end_us(path) < cutoff_us]
        if not dropped:
            return
        _, before_seq = dropped[-1]
        self._remember([path for path, _ in dropped], before_seq)

    def _remember(self, dropped: list[Path], before_seq: int) -> None:
        """Write what will be forgotten, then delete the segments `dropped`."""
        self._remembering = self._checkpoints.remember(self._data)
        self._remembering.add_done_callback(partial(self._remembered, dropped, before_seq))

    def _remembered(self, dropped: list[Path], before_seq: int, done: asyncio.Future[None]) -> None:
        self._remembering = None
        problem = done.exception()
        if problem is not None:
            log.warning("journal: remembered.db could not be written: %s", problem)
            return
        if not dropped or self._ledger.journal.failure is not None:
            return
        self._oldest_us = 0
        delete = partial(_delete, dropped)
        if self._journal_endpoints(before_seq, self._ledger.now_us()):
            self._ledger.journal.after_commit(delete)
        else:
            delete()

    def _journal_endpoints(self, before_seq: int, now_us: int) -> bool:
        """Journal old endpoints again, so that the remaining segments hold every registration."""
        old = [m for m in self._ledger.state.registered() if m.registered_seq < before_seq]
        for mailbox in old:
            self._ledger.record(
                EndpointChanged(
                    at_us=now_us,
                    endpoint=mailbox.subject,
                    action="registered",
                    since_us=mailbox.since_us,
                    directory=journaled_directory(mailbox),
                )
            )
        return bool(old)

    def _unneeded(self, segments: list[tuple[int, Path]]) -> list[tuple[Path, int]]:
        """Return the sealed segments that only retention keeps, each with the first seq after it.

        The last segment is always needed: its name and events continue the numbering.
        """
        needed = min(
            (message.location.segment for message in indexed_messages(self._ledger.state)),
            default=self._ledger.journal.segment,
        )
        following = [first for first, _ in segments[1:]]
        return [
            (path, after)
            for (first, path), after in zip(segments[:-1], following, strict=True)
            if path.suffix == ".jsonl"
            and first < needed
            and after - 1 <= self._checkpoints.written_seq
        ]


def _end_us(path: Path) -> int:
    commit = last_commit(path)
    return commit.at_us if commit is not None else int(path.stat().st_mtime * 1_000_000)


def _delete(segments: list[Path]) -> None:
    for path in segments:
        path.unlink(missing_ok=True)
        bodies_path(path.parent, int(path.stem)).unlink(missing_ok=True)
        index_path(path).unlink(missing_ok=True)
        log.info("journal: deleted segment %s, past its retention", path.name)
