"""A node's copy of a partition's log, in local segment files: kept up to date, and taken over.

Rule 1  Up to the end of the log, the segments are the same bytes as the log and as on every node.
Rule 2  Beyond it, they may have batches whose outcome this node did not learn, or that the log has
        lost. A node that takes over with them appends them again: their callers may have got an
        answer, and if not, they may try again with the same id.
Rule 3  If the log has another batch in their place, they are set aside. If one of them had been
        confirmed, the log has lost it: this node does not take over until that is repaired.
Rule 4  A node that begins to follow compares the end of the log with its copy first: in a log that
        ends before it, there would be nothing to follow, without an error.

Failures and answers:
  the mark does not fit the segments or the log   both are compared from the log's beginning
  the log is empty, and the mark is not           `LogLost`: nothing is copied or taken over
  the log begins after the segments end           `LogUnusable`: copy another node's directory
"""

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from waypost.cluster.copies import LOST, lost_files
from waypost.relay.data_dir import DataDir
from waypost.relay.errors import LogLost, LogUnavailable, LogUnusable, NotOwner
from waypost.relay.journal.confirmed import Confirmed, ConfirmedMark
from waypost.relay.journal.file_log import End, FileLog, commit_of
from waypost.relay.journal.log import (
    Appended,
    Conflict,
    Entry,
    Header,
    Log,
    Record,
    Tail,
    Unknown,
)
from waypost.relay.journal.replicated import Ownership
from waypost.relay.journal.segments import decode_line, list_segments
from waypost.relay.state.recovery import checkpoint, drop_index_after, indexed_seq
from waypost.wire.events import OwnerChanged

log = logging.getLogger("waypost.cluster")

_ROUNDS_MAX = 100
"""Answers about the end of the log that its records may contradict, before a node gives up."""

_UNCONFIRMED_MAX = 100
"""Files with unconfirmed batches that are kept; the newest ones."""


class Follower:
    """Copies a log into the journal of a data directory that no relay has open.

    `position` and `hash` are of the last record of the log that the segments are known to hold.
    """

    def __init__(self, data: DataDir, shared: Log) -> None:
        self._data = data
        self._log = shared
        self._local = FileLog(data.journal, sync=False)
        self._mark = ConfirmedMark(data.journal)
        self.appended = 0
        """Batches that the log lacked, and that were appended again."""
        self._indexed_seq = indexed_seq(data)
        self._compared_at = 0
        """The position of the record for which the copy was last compared with the log."""
        self._begin(self._known())

    @property
    def lost(self) -> list[Path]:
        """The files with events that the log has lost, and that are not repaired yet."""
        return lost_files(self._data.journal)

    @property
    def problem(self) -> str:
        """Why this node does not take over, though it follows; "" if it may."""
        lost = self.lost
        if not lost:
            return ""
        return (
            f"the replicated log lost events that it had confirmed; {lost[0]} still has them: stop"
            " this node, run 'waypost cluster repair CLUSTER --data-dir DIR', and start it again"
        )

    async def check_end(self) -> Tail:
        """Return the end of the log; if it is not after the copy, follow from the beginning.

        Raise `LogLost` if the log is empty and was not before.
        """
        tail = await self._log.tail()
        if tail.header is None and self._mark.last.position:
            raise LogLost(
                f"the replicated log is empty, but {self._data.root} has events of it up to"
                f" {self._mark.last.seq:,}: check that this is the right cluster; if its stream"
                " was deleted, 'waypost cluster repair --refill' fills it from a journal"
            )
        if tail.position <= self.position and not self._is_at(tail):
            self._compare_again(f"its end at {tail.position:,} is not")
        return tail

    async def follow(self, wait_s: float) -> int:
        """Copy the next records, waiting for the first; return how many there were."""
        entries = await self._log.read(self.position, wait_s)
        for number, entry in enumerate(entries):
            if self.hash is not None and entry.record.header.prev != self.hash:
                if number or entry.position == self._compared_at:
                    raise _contradiction(entry)
                self._compared_at = entry.position
                self._compare_again(f"the batch at {entry.position:,} does not continue")
                return 0
            await self._put(entry)
        return len(entries)

    @property
    def unindexed_events(self) -> int:
        """The events that a relay would fold if it was opened now: the index lacks them."""
        return self._seq - self._indexed_seq

    async def checkpoint(self) -> None:
        """Bring the index up to the end of the segments; a failure only makes opening slower."""
        try:
            await asyncio.to_thread(checkpoint, self._data)
        except (OSError, sqlite3.Error) as problem:
            log.warning("cluster: index of %s not written: %s", self._data.root, problem)
        self._indexed_seq = self._seq

    async def catch_up(self) -> Tail:
        """Copy everything up to the end of the log, and return that."""
        rounds, tail = 0, Tail(0, None)
        while rounds < _ROUNDS_MAX:
            if await self.follow(0.0):
                continue
            rounds += 1
            tail = await self.check_end()
            if self._is_at(tail):
                return tail
        raise LogUnavailable(
            f"the replicated log does not return the records up to its end at {tail.position:,}:"
            " check the state of its stream"
        )

    async def take_over(
        self, node: str, address: str = "", *, ignore_lost: bool = False
    ) -> Ownership:
        """Return what it takes to open a relay as the owner; the follower is closed then.

        Raise `NotOwner` if another node is faster, `LogLost` if events must be repaired first.
        """
        tail = await self.catch_up()
        if self.problem and not ignore_lost:
            raise LogLost(self.problem)
        tail = await self.append_missing(tail, node)
        await self.close()
        return Ownership(self._log, tail, node, address)

    async def append_missing(self, tail: Tail, node: str) -> Tail:
        """Append what the segments have after `tail`, and return the new end.

        Raise `NotOwner` if another node has appended meanwhile, `LogUnavailable` without an answer.
        """
        for record in self._ahead(tail, node):
            tail = await self._append_again(tail, record)
        return tail

    async def refill(self, node: str) -> Tail:
        """Fill an empty log with all that the segments have, and return its end.

        Raise `LogUnusable` if it is not empty, or if the segments do not begin with event 1.
        """
        tail = await self._log.tail()
        if tail.header is not None:
            raise LogUnusable("the replicated log is not empty: only an empty one can be filled")
        if 1 not in list_segments(self._data.journal):
            raise LogUnusable(
                f"the journal of {self._data.root} does not begin with event 1: older segments were"
                " deleted; fill the stream from another node, or from a backup"
            )
        self._mark.set(Confirmed())  # the batches get other positions
        self._begin(Confirmed())
        return await self.append_missing(tail, node)

    async def close(self) -> None:
        """Sync and close the files; the log stays open. Raises `OSError`."""
        try:
            await self._local.close()
        finally:
            self._mark.close()

    def _known(self) -> Confirmed:
        """Return the mark if the segments hold its batch, or the beginning of the log."""
        last = self._mark.last
        if last.hash and self._local.hash_before(End(last.segment, last.offset)) == last.hash:
            return last
        return Confirmed()

    def _begin(self, known: Confirmed) -> None:
        self.position = known.position
        self.hash: str | None = known.hash or None
        self._seq, self._place = known.seq, End(known.segment, known.offset)
        if known.sealed:
            self._local.seal(self._place)
            self._place = End(self._seq + 1, 0)

    def _is_at(self, tail: Tail) -> bool:
        """Return whether the log ends with the record that was copied last.

        A record that only seals has the hash of the one before it, so the hash is not enough.
        """
        if tail.header is None:
            return self.hash is None
        is_sealed = self.hash is not None and not self._place.offset
        same = tail.hash == self.hash and tail.header.seal == is_sealed
        return same and tail.position >= self.position

    def _compare_again(self, why: str) -> None:
        log.warning("cluster: comparing the whole log: %s this node's copy", why)
        self._begin(Confirmed())

    async def _put(self, entry: Entry) -> None:
        """Make the segments hold a record of the log at its place."""
        header = entry.record.header
        begin = End(header.segment, header.offset)
        if self.hash is not None and begin == (self._seq + 1, 0) != self._place:
            # A log that lost its end may have got the last record again, and sealed this time.
            seal = _seal_only(self._place, self.hash, header.epoch, header.node)
            await self._put(Entry(self.position, seal))
        if begin > self._local.end:
            raise LogUnusable(
                f"the replicated log begins with segment {header.segment}, and {self._data.root}"
                f" ends in segment {self._local.end.segment}: copy the data directory of another"
                " node while that is stopped, then start this node again"
            )
        if entry.record.lines:
            self._seq = commit_of(entry.record).seq
        kept = await self._local.put(entry.record)
        if kept is not None:
            drop_index_after(self._data, *kept.begin)
            self._indexed_seq = indexed_seq(self._data)
            self._report(kept.files, lost=self._mark.last.is_after(*kept.begin))
        self.position, self.hash = entry.position, header.hash
        end = End(header.segment, header.offset + len(entry.record.lines))
        self._place = End(self._seq + 1, 0) if header.seal else end
        if kept is not None or self._mark.last.position < self.position:
            self._mark.set(
                Confirmed(self.position, header.hash, self._seq, *end, sealed=header.seal)
            )

    def _report(self, kept: list[Path], *, lost: bool) -> None:
        if lost:
            for path in kept:
                path.rename(_free_name(path))
            log.error("cluster: the log has lost confirmed events, which %s still has", self.lost)
        elif kept:
            log.warning("cluster: an unconfirmed batch that the log lacks is set aside: %s", kept)
            others = set(kept[0].parent.iterdir()) - set(self.lost)
            for path in sorted(others, key=lambda one: one.stat().st_mtime)[:-_UNCONFIRMED_MAX]:
                path.unlink()

    def _ahead(self, tail: Tail, node: str) -> Iterator[Record]:
        """Yield the records that the log lacks, as this node appends them."""
        place, hash_, epoch = self._place, tail.hash, tail.epoch
        for entry in self._local.records(self._seq):
            record = entry.record
            header = record.header
            if (header.segment, header.offset) != place:
                yield _seal_only(place, hash_, epoch, node)
            epoch = _epoch_of(record) or epoch
            header = msgspec.structs.replace(header, prev=hash_, epoch=epoch, node=node)
            yield Record(header, record.lines, record.bodies)
            hash_ = header.hash
            end = End(header.segment, header.offset + len(record.lines))
            place = End(entry.position + 1, 0) if header.seal else end
        if place != self._local.end:
            yield _seal_only(place, hash_, epoch, node)

    async def _append_again(self, tail: Tail, record: Record) -> Tail:
        outcome = await self._log.append(tail.position, record)
        header = record.header
        match outcome:
            case Appended(position):
                log.warning("cluster: a batch that the log lacked is appended again: %s", header)
                self.appended += 1
                await self._put(Entry(position, record))
                return Tail(position, header)
            case Conflict():
                raise NotOwner("another node has appended to the log meanwhile: try again later")
            case Unknown(why):
                raise LogUnavailable(f"the replicated log did not confirm a batch: {why}")


def _contradiction(entry: Entry) -> LogUnusable:
    header = entry.record.header
    return LogUnusable(
        f"the record at {entry.position:,} of the replicated log, by {header.node}, does not"
        " continue the one before it: the log lost its end while that node was writing; stop all"
        " nodes, delete the stream, and fill it from the longest journal with 'waypost cluster"
        " repair --refill'"
    )


def _free_name(path: Path) -> Path:
    """Return a name for lost events that no file has: an earlier loss is still to be repaired."""
    number, free = 1, path.with_name(path.name + LOST)
    while free.exists():
        number, free = number + 1, path.with_name(f"{path.name}.{number}{LOST}")
    return free


def _epoch_of(record: Record) -> int:
    """Return the epoch that begins with a batch, or 0."""
    first = decode_line(record.lines[: record.lines.index(b"\n")])
    return first.epoch if isinstance(first, OwnerChanged) else 0


def _seal_only(place: End, hash_: str, epoch: int, node: str) -> Record:
    header = Header(place.segment, place.offset, 0, True, hash_, hash_, epoch, node)
    return Record(header, b"")
