"""Verifies the streams of a cluster, from their first message, and nodes' journals against them.

Rule 1  Nothing is changed, and nodes may be running meanwhile.
Rule 2  A record is checked by itself (hash, checksum, payloads), by the one before it (chain,
        numbers, place) and by the owners before it (epoch).
Rule 3  A stream that cannot be read does not keep the others from being read.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client

from waypost.cluster.copies import CopyCheck, CopyReport
from waypost.cluster.layout import Layout
from waypost.cluster.streams import open_log, stream_name
from waypost.relay.errors import JournalUnreadable, LogUnavailable, LogUnusable
from waypost.relay.journal.file_log import End
from waypost.relay.journal.log import NO_HASH, Entry, Record, hash_of
from waypost.relay.journal.segments import decode_line
from waypost.wire.events import Commit, OwnerChanged, split
from waypost.wire.journal_batches import NO_BATCH, ValidBatch, read_batches

_FINDINGS_MAX = 100
"""Findings of one stream that are reported; after damage, every record may be one."""

OnProgress = Callable[[int, int], None]


class PartitionReport(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: its stream up to `position`, with `events`, and the journals compared."""

    number: int
    position: int = 0
    records: int = 0
    events: int = 0
    epoch: int = 0
    owner: str = ""
    findings: list[str] = []
    copies: list[CopyReport] = []

    @property
    def all_findings(self) -> list[str]:
        """Those of the stream, then those of the journals."""
        return [*self.findings, *(one for copy in self.copies for one in copy.findings)]


class ClusterReport(msgspec.Struct, frozen=True, kw_only=True):
    """All partitions of a cluster."""

    cluster: str
    partitions: list[PartitionReport]

    @property
    def findings(self) -> int:
        """How many there are."""
        return sum(len(one.all_findings) for one in self.partitions)


class StreamCheck:
    """Checks the records of one stream, from the first to the last."""

    def __init__(self) -> None:
        self.records = self.position = self.seq = self.epoch = 0
        self.owner = ""
        self.end = End(1, 0)
        self.findings: list[str] = []
        self._hash = NO_HASH

    def note(self, entry: Entry) -> None:
        """Check the next record."""
        record, self.position = entry.record, entry.position
        problems = [*self._place(record), *self._content(record)]
        header = record.header
        if header.epoch != self.epoch:
            problems.append(f"it is of epoch {header.epoch}, but its owner has {self.epoch}")
        text = f"message {entry.position:,}, by {header.node:.80}: "
        self.report(*(text + one for one in problems))
        self.records += 1
        self._hash = header.hash
        end = End(header.segment, header.offset + len(record.lines))
        self.end = End(self.seq + 1, 0) if header.seal else end

    def report(self, *problems: str) -> None:
        """Add findings, up to a limit."""
        self.findings += problems[: max(0, _FINDINGS_MAX - len(self.findings))]

    def _place(self, record: Record) -> Iterator[str]:
        header = record.header
        if header.prev != self._hash:
            yield "it does not continue the record before it"
        if (header.segment, header.offset) != self.end:
            yield (
                f"it begins at byte {header.offset:,} of segment {header.segment}, and should at"
                f" byte {self.end.offset:,} of segment {self.end.segment}"
            )

    def _content(self, record: Record) -> Iterator[str]:
        if not record.lines:
            if not record.header.seal or record.header.hash != record.header.prev:
                yield "it has no batch"
            return
        pieces = list(read_batches(record.lines))
        batch = pieces[0]
        if len(pieces) != 1 or not isinstance(batch, ValidBatch):
            yield "it does not hold one valid batch: its checksum is wrong"
            return
        if hash_of(record.lines) != record.header.hash:
            yield "its batch has another hash than it names"
        commit = batch.commit
        if commit.prev and commit.prev != (self._hash or NO_BATCH):
            yield "its commit line does not name the batch before it"
        if not _has_bodies(record, commit):
            yield "its large payloads are not those of its batch"
        yield from self._events(record.lines[: batch.stop], commit)

    def _events(self, lines: bytes, commit: Commit) -> Iterator[str]:
        expected = self.seq
        try:
            for line in lines.splitlines():
                for event in split(decode_line(line)):
                    expected += 1
                    if event.seq != expected:
                        yield f"event {event.seq:,} follows event {expected - 1:,}"
                        expected = event.seq
                    if isinstance(event, OwnerChanged):
                        yield from self._owner(event)
        except JournalUnreadable as problem:
            yield str(problem)
        if commit.seq != expected:
            yield f"its commit line names event {commit.seq:,}, its last one is {expected:,}"
        self.seq = commit.seq

    def _owner(self, event: OwnerChanged) -> Iterator[str]:
        if event.epoch <= self.epoch:
            yield f"epoch {event.epoch} of {event.node:.80} follows epoch {self.epoch}"
        self.epoch, self.owner = event.epoch, event.node


async def verify_cluster(
    client: Client,
    cluster: str,
    layout: Layout,
    data_dirs: Sequence[Path] = (),
    on_progress: OnProgress = lambda done, total: None,
) -> ClusterReport:
    """Read every stream and compare the journals in `data_dirs` with them."""
    ends = [await _last_sequence(client, cluster, one) for one in range(layout.partitions)]
    total, done = sum(ends), 0
    found = []
    for number in range(layout.partitions):
        before = done

        def progress(position: int, before: int = before) -> None:
            on_progress(min(before + position, total), total)

        places = [one / "partitions" / str(number) for one in data_dirs]
        found.append(await verify_partition(client, cluster, number, layout, places, progress))
        done += ends[number]
    return ClusterReport(cluster=cluster, partitions=found)


async def verify_partition(
    client: Client,
    cluster: str,
    number: int,
    layout: Layout,
    directories: Sequence[Path] = (),
    on_progress: Callable[[int], None] = lambda position: None,
) -> PartitionReport:
    """Read one stream, and compare the journals of a partition with it."""
    check, copies = StreamCheck(), [CopyCheck(one) for one in directories]
    is_read = True
    try:
        check.report(*await _gaps(client, cluster, number))
        log = await open_log(client, cluster, number, replicas=layout.replicas)
        try:
            while entries := await log.read(check.position):
                for entry in entries:
                    check.note(entry)
                    for copy in copies:
                        copy.note(entry.record)
                on_progress(check.position)
        finally:
            await log.close()
    except (LogUnusable, LogUnavailable) as problem:
        check.report(str(problem))
        is_read = False
    return PartitionReport(
        number=number,
        position=check.position,
        records=check.records,
        events=check.seq,
        epoch=check.epoch,
        owner=check.owner,
        findings=check.findings,
        # Of a stream that was not read to its end, nothing can be said to be missing.
        copies=[copy.report(check.end) for copy in copies] if is_read else [],
    )


async def _gaps(client: Client, cluster: str, number: int) -> list[str]:
    """Return whether messages of a stream were removed: it begins with 1 and has no gap."""
    name = stream_name(cluster, number)
    try:
        state = (await client.jetstream().stream_info(name)).state
    except (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError):
        return []  # opening the log reports it
    missing = state.last_seq - state.messages
    if missing > 0:
        return [f"{missing:,} messages of the stream {name} were removed, up to {state.last_seq:,}"]
    return []


async def _last_sequence(client: Client, cluster: str, number: int) -> int:
    try:
        info = await client.jetstream().stream_info(stream_name(cluster, number))
    except (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError):
        return 0
    return int(info.state.last_seq)


def _has_bodies(record: Record, commit: Commit) -> bool:
    if commit.bodies is None:
        return True  # of an older version, or without large payloads
    digest = hashlib.sha256(record.bodies).hexdigest()
    return (commit.bodies.length, commit.bodies.sha256) == (len(record.bodies), digest)
