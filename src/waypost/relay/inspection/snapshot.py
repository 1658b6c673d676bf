"""A read-only snapshot of a data directory: takes no lock and changes nothing.

It works while a relay runs there. The snapshot is of one instant in the near past: the last
checkpoint of the index and every commit after it.
"""

import contextlib
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from waypost.files import read_file
from waypost.policy.bounds import config_file_max_bytes
from waypost.policy.breakers import CLOSED
from waypost.policy.errors import InvalidSettings
from waypost.policy.settings import Settings, merge_settings
from waypost.relay.config.access_file import AccessFile
from waypost.relay.data_dir import DataDir, owner_of
from waypost.relay.errors import UnknownEndpoint
from waypost.relay.inspection.contents import MailboxContents, read_contents
from waypost.relay.inspection.dead_letters import (
    DeadLetter,
    DeadLetterGroup,
    group_dead_letters,
    list_dead_letters,
)
from waypost.relay.inspection.findings import Facts, what_to_look_at
from waypost.relay.inspection.scheduled import list_scheduled
from waypost.relay.inspection.stats import MailboxStats, mailbox_stats
from waypost.relay.journal.segments import (
    Batch,
    Damage,
    decode_line,
    list_segments,
    read_segment,
    segment_bytes,
)
from waypost.relay.state.payloads import PayloadStore
from waypost.relay.state.recovery import RecoveryReport, recover
from waypost.relay.state.rejection_counts import RejectionCounts
from waypost.relay.state.relay_state import RelayState
from waypost.wire.breaker_bodies import BreakerInfo
from waypost.wire.events import AnyEvent, BreakerMoved, Rejected, SettingsChanged
from waypost.wire.findings import OperatorFinding, SenderRejections
from waypost.wire.journal_batches import ValidBatch, read_batches
from waypost.wire.scheduled import ScheduledMessage

T = TypeVar("T")

_ATTEMPTS = 5


class RecentEvents(msgspec.Struct):
    """Counts from `since_us` on: events by kind, rejections by reason and lately by sender.

    `breakers` holds the last move of each breaker that was not closed when the journal ended.
    """

    since_us: int = 0
    events: Counter[str] = msgspec.field(default_factory=Counter)
    rejected: Counter[str] = msgspec.field(default_factory=Counter)
    breakers: dict[str, BreakerMoved] = {}
    senders: RejectionCounts = msgspec.field(default_factory=RejectionCounts)


class Snapshot(msgspec.Struct):
    """The state of a data directory; `owner` is the pid of a relay that runs there, or empty."""

    data: DataDir
    state: RelayState
    settings: Settings
    owner: str
    report: RecoveryReport
    problems: list[str]

    def mailbox_stats(self) -> list[MailboxStats]:
        """Return the statistics of mailboxes that are registered or hold messages."""
        return [
            one
            for one in mailbox_stats(self.state, self.settings)
            if self.state.mailboxes[one.subject].registered
            or one.pending + one.scheduled + one.leased + one.dead
        ]

    def findings(
        self,
        inboxes: list[MailboxStats],
        breakers: Mapping[str, BreakerInfo],
        rejections: list[SenderRejections],
        now_us: int,
    ) -> list[OperatorFinding]:
        """Return what to look at. Which agents are stuck only a running relay knows."""
        disk = shutil.disk_usage(self.data.root)
        return what_to_look_at(
            Facts(
                now_us=now_us,
                inboxes=inboxes,
                warning_at=self.settings.backpressure.pressure_warning_at,
                breakers={name: one.state for name, one in breakers.items()},
                rejections=rejections,
                disk=(disk.free, disk.total),
                served=False,
            )
        )

    def read_mailbox(
        self, subject: str, limit: int, max_size_bytes: int | None, now_ms: int
    ) -> MailboxContents:
        """Return pending messages as `read_contents` does. Raises `UnknownEndpoint`."""
        mailbox = self.state.mailboxes.get(subject)
        if mailbox is None:
            raise UnknownEndpoint(subject)
        payloads = PayloadStore(self.data.journal)
        try:
            return read_contents(mailbox, payloads, limit, max_size_bytes, now_ms)
        finally:
            payloads.close()

    def scheduled(self, sender: str | None) -> list[ScheduledMessage]:
        """Return scheduled messages of one sender, or all, those due first at the beginning."""
        payloads = PayloadStore(self.data.journal)
        try:
            return list_scheduled(self.state, payloads, sender)
        finally:
            payloads.close()

    def dead_letters(self, subject: str | None = None) -> list[DeadLetter]:
        """Return dead letters of one endpoint or all, the oldest failure first."""
        payloads = PayloadStore(self.data.journal)
        try:
            return list_dead_letters(self.state, payloads, subject)
        finally:
            payloads.close()

    def dead_letter_groups(self, subject: str | None = None) -> list[DeadLetterGroup]:
        """Return dead letters grouped by endpoint and reason, the largest group first."""
        return group_dead_letters(self.state, subject)

    def count_dead_letters(self, subject: str | None = None, before_us: int | None = None) -> int:
        """Return the number of dead letters, or of those that failed before `before_us`."""
        return len(self.state.dead_messages(subject, before_us))


def take_snapshot(data: DataDir, *, use_index: bool = True) -> Snapshot:
    """Return the state a relay would recover from `data` now.

    Raises `DataDirUnusable` if no relay has used the directory.
    """
    data.require()
    owner = owner_of(data)
    recovered = retry_while_changing(lambda: recover(data, 0, repair=False, use_index=use_index))
    recovered.index.close()
    settings, problem = directory_settings(data)
    report = recovered.report
    damage = [
        f"journal: bytes {one.start:,} to {one.end:,} of segment {one.segment} are damaged"
        for one in report.damaged
        if not one.at_tail
    ]
    problems = [one for one in (problem, AccessFile(data).problem, report.problem, *damage) if one]
    return Snapshot(data, recovered.state, settings, owner, report, problems)


def retry_while_changing(read: Callable[[], T]) -> T:
    """Call `read` again when files changed under it.

    A running relay seals and drops segments, and merges the log of the index into its file.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return read()
        except (FileNotFoundError, sqlite3.DatabaseError):
            continue
    return read()


def directory_settings(data: DataDir, given: Settings | None = None) -> tuple[Settings, str]:
    """Return the settings a relay would start with, and the problem of `config.json`.

    Without `given`, the storage is that of the last relay: Maildir files, or none, are a property
    of the directory.
    """
    start = given or starting_settings(data)
    try:
        return merge_settings(start, read_file(data.config, config_file_max_bytes)), ""
    except FileNotFoundError:
        return start, ""
    except (OSError, InvalidSettings) as problem:
        return start, f"{data.config} is ignored: {problem}"


def starting_settings(data: DataDir) -> Settings:
    """Return the default settings with the storage of the last relay in this directory."""
    return Settings(storage="journal" if last_storage(data) == "journal" else "maildir")


def last_storage(data: DataDir) -> str:
    """Return the `storage` setting of the last relay; empty if the journal has none.

    Reads backwards and stops at the first match, usually in the newest segment.
    """
    return retry_while_changing(lambda: _last_storage(data))


def count_recent_events(data: DataDir, max_bytes: int) -> RecentEvents:
    """Count the events in the newest `max_bytes` of the journal: whole segments, at least one."""
    return retry_while_changing(lambda: _count_recent_events(data, max_bytes))


class JournalTail:
    """New events of a journal that another process may write; begins at its present end.

    Each byte is read once.
    """

    def __init__(self, data: DataDir) -> None:
        self._directory = data.journal
        self._segment, self._offset = retry_while_changing(self._find_end)

    def _find_end(self) -> tuple[int, int]:
        ends = [(one, path.stat().st_size) for one, path in list_segments(self._directory).items()]
        return ends[-1] if ends else (0, 0)

    def read(self) -> list[AnyEvent]:
        """Return the events that were committed since the last call.

        The first batch may be missed if it was being written when this began.
        """
        found: list[AnyEvent] = []
        for segment, path in list_segments(self._directory).items():
            if segment > self._segment:
                self._segment, self._offset = segment, 0
            if segment == self._segment:
                found += self._read_segment(path)
        return found

    def _read_segment(self, path: Path) -> list[AnyEvent]:
        content = b""
        for name in (path, path.with_suffix(".jsonl")):  # it may be sealed, or deleted, by now
            with contextlib.suppress(FileNotFoundError), name.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
                break
        found: list[AnyEvent] = []
        end = 0
        for piece in read_batches(content, 0):
            if isinstance(piece, ValidBatch):
                end = piece.end
                lines = content[piece.start : piece.stop].split(b"\n")
                found += [decode_line(line) for line in lines if line]
        self._offset += end
        return found


def _last_storage(data: DataDir) -> str:
    needle = b'{"kind":"settings"'
    for first_seq, path in reversed(list_segments(data.journal).items()):
        if needle not in segment_bytes(path):
            continue
        for piece in reversed(list(read_segment(path, first_seq))):
            if isinstance(piece, Batch) and needle in piece.data[piece.start : piece.stop]:
                found = [e for e, _ in piece.events() if isinstance(e, SettingsChanged)]
                if found:
                    return str(found[-1].settings.get("storage", ""))
    return ""


def _count_recent_events(data: DataDir, max_bytes: int) -> RecentEvents:
    found = RecentEvents()
    moves = _LastMoves()
    for first_seq, path in reversed(list_segments(data.journal).items()):
        first = True
        pieces = list(read_segment(path, first_seq))
        max_bytes -= max((piece.end for piece in pieces), default=0)
        if max_bytes < 0 and found.since_us:
            break
        for piece in pieces:
            if isinstance(piece, Damage):
                continue
            for event, _ in piece.events():
                if first:
                    found.since_us, first = event.at_us, False
                moves.follow(event)
                if isinstance(event, Rejected):
                    found.rejected[event.reason] += event.count
                    found.senders.add(event.sender, event.reason, event.at_us, event.count)
                else:
                    found.events[str(type(event).__struct_config__.tag)] += 1
        moves.end_segment()
    found.breakers = moves.not_closed()
    return found


class _LastMoves:
    """The last move of each breaker since the relay started; segments come newest first."""

    def __init__(self) -> None:
        self._found: dict[str, BreakerMoved] = {}
        self._segment: dict[str, BreakerMoved] = {}
        self._has_start = self._ended = False

    def follow(self, event: AnyEvent) -> None:
        """Follow an event of the current segment."""
        if isinstance(event, BreakerMoved):
            self._segment[event.endpoint] = event
        elif isinstance(event, SettingsChanged) and event.cause == "start":
            self._segment.clear()
            self._has_start = True

    def end_segment(self) -> None:
        """Go on with the segment before: its moves count unless the relay started since."""
        if not self._ended:
            self._found = {**self._segment, **self._found}
        self._ended = self._ended or self._has_start
        self._segment = {}

    def not_closed(self) -> dict[str, BreakerMoved]:
        """Return the moves of breakers that are not closed."""
        return {name: move for name, move in self._found.items() if move.after is not CLOSED}
