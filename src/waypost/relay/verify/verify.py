"""Verifies a data directory: journal, index and mailboxes against each other.

The journal is read from its first line to its last. As long as it is complete, it is the truth:
the index must equal the state it produces, and the mailbox files must match that state. Where the
journal has lost events, the index may hold more, and is kept. What segments held that retention
has deleted must be in `journal/remembered.db`, too.

Without `repair`, nothing is changed and nothing is locked, so a relay may be running. A difference
that the running relay may be about to resolve is checked several times before it is reported.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from waypost.relay.clock import system_clock
from waypost.relay.data_dir import DataDir, DirectoryLock, owner_of
from waypost.relay.inspection.snapshot import (
    directory_settings,
    retry_while_changing,
    take_snapshot,
)
from waypost.relay.journal.segments import Damage, bodies_path
from waypost.relay.state.index import all_messages
from waypost.relay.state.recovery import damaged_copy, recover, set_aside
from waypost.relay.state.remembered import (
    remembered_path,
    remembered_problem,
    write_remembered,
)
from waypost.relay.verify.byte_repair import FlippedByte, correct_byte, find_flipped_byte
from waypost.relay.verify.findings import Finding, Outcome, Part, VerifyReport
from waypost.relay.verify.index_check import Beginning, IndexComparison, read_index, rebuild
from waypost.relay.verify.journal_check import Gap, JournalScan, OnSegment
from waypost.relay.verify.mailbox_check import MailboxCheck

_RECHECKS = 4
_PAUSE_S = 0.25
"""A running relay writes mailbox files a moment after the journal."""


def verify(
    data: DataDir,
    *,
    repair: bool = False,
    on_segment: OnSegment = lambda done, total: None,
) -> VerifyReport:
    """Verify `data`; with `repair`, lock the directory and repair errors where possible.

    `on_segment(done, total)` is called after each journal segment. Raise `DataDirUnusable` if
    `data` is no data directory, and with `repair` `DataDirInUse` if a relay is running there.
    """
    data.require()
    if not repair:
        return retry_while_changing(lambda: _verify(data, on_segment))
    lock = DirectoryLock(data)
    try:
        return _verify_and_repair(data, on_segment)
    finally:
        lock.release()


def rebuild_index(data: DataDir) -> tuple[int, bool]:
    """Rewrite the index from the journal; return the number of its messages, and a warning.

    The warning is True if the journal has lost events: the index may then hold acknowledged
    messages, or lack stored ones. The directory is locked meanwhile.
    """
    data.require()
    lock = DirectoryLock(data)
    try:
        rebuilt = rebuild(data)
    finally:
        lock.release()
    return rebuilt.messages, bool(rebuilt.report.damaged)


def _verify_and_repair(data: DataDir, on_segment: OnSegment) -> VerifyReport:
    first = _Verification(data, "", repair=True)
    first.read(on_segment)
    corrected = first.correct_bytes()
    if not corrected:
        return first.report()
    second = _Verification(data, "", repair=True)  # the journal has more events now
    second.read(on_segment)
    rest = second.report()
    return msgspec.structs.replace(rest, findings=[*corrected, *rest.findings])


def _verify(data: DataDir, on_segment: OnSegment) -> VerifyReport:
    verification = _Verification(data, owner_of(data), repair=False)
    verification.read(on_segment)
    return verification.report()


class _Verification:
    """One verification of a directory: call `read` first, then `report`."""

    def __init__(self, data: DataDir, owner: str, *, repair: bool) -> None:
        self._data = data
        self._owner = owner
        self._repair = repair
        self._index_is_wrong = False
        self._remembered_is_wrong = False
        self._flipped: dict[Damage, FlippedByte] = {}
        """Damage that a single flipped byte explains."""
        self._settings, _ = directory_settings(data)
        self._rows, self._index_problem = read_index(data)
        self._comparison = IndexComparison(self._rows) if self._rows is not None else None
        if self._comparison is not None:
            self._scan = JournalScan(data.journal, self._comparison.at_batch)
        else:
            self._scan = JournalScan(data.journal)

    def read(self, on_segment: OnSegment) -> None:
        """Read the whole journal."""
        self._scan.run(on_segment)
        for gap in self._scan.gaps:
            if gap.damage is not None and not gap.torn:
                path = self._scan.segments[gap.damage.segment]
                flipped = find_flipped_byte(path, gap.damage)
                if flipped is not None:
                    self._flipped[gap.damage] = flipped

    def correct_bytes(self) -> list[Finding]:
        """Correct single flipped bytes; the journal must be read again after that."""
        corrected = []
        for damage, flipped in self._flipped.items():
            path = self._scan.segments[damage.segment]
            set_aside(self._data, path, damage)
            correct_byte(path, flipped)
            corrected.append(_flip_finding(path.name, flipped, Outcome.REPAIRED))
        return corrected

    def report(self) -> VerifyReport:
        """Return the findings, after repairing errors if requested."""
        findings = [*self._journal(), *self._remembered(), *self._index()]
        if self._repair:
            self._repair_files()
        use_index = self._repair or not self._index_is_wrong
        found, messages = self._mail(use_index)
        for _ in range(_RECHECKS if self._owner else 0):
            if found:
                time.sleep(_PAUSE_S)
                again, messages = self._mail(use_index)
                found = [one for one in found if one in again]
        return VerifyReport(
            data_dir=str(self._data.root),
            in_use_by=self._owner,
            segments=len(self._scan.segments),
            events=self._scan.events,
            chained_from=self._scan.chain.chained_from,
            messages=messages,
            findings=[*findings, *found],
        )

    @property
    def _reparable(self) -> Outcome:
        return Outcome.REPAIRED if self._repair else Outcome.FOUND

    def _journal(self) -> Iterator[Finding]:
        for gap in self._scan.gaps:
            if not (gap.torn and self._owner):  # a running relay may be writing it
                yield self._describe_gap(gap)
        for problem in self._scan.misnumbered:
            yield Finding(Part.JOURNAL, "numbers", problem, Outcome.LOST)
        yield from self._chain()
        *older, _ = self._scan.segments.values() or [Path()]
        for path in older:
            if path.suffix == ".open" and not self._owner:
                text = "not sealed, although a later segment exists"
                yield Finding(Part.JOURNAL, path.name, text, self._reparable)

    def _chain(self) -> Iterator[Finding]:
        for link in self._scan.chain.broken:
            if link.damage not in self._flipped:  # it holds once the byte is corrected
                outcome = Outcome.LOST if link.damage is None else Outcome.NOTED
                name = self._scan.segments[link.segment].name
                yield Finding(Part.JOURNAL, name, str(link), outcome)
        for one in self._scan.changed_bodies:
            if not any(map(one.explains, self._scan.broken_bodies)):  # its checksum is changed, too
                name = bodies_path(self._data.journal, one.segment).name
                yield Finding(Part.JOURNAL, name, str(one), Outcome.LOST)

    def _describe_gap(self, gap: Gap) -> Finding:
        lost = _lost(gap)
        if gap.damage is None:
            return Finding(Part.JOURNAL, gap.segment, f"before it, {lost}", Outcome.LOST)
        damage = gap.damage
        if gap.torn:
            size = damage.end - damage.start
            text = f"{size:,} bytes at the end are an unfinished write"
            return Finding(Part.JOURNAL, gap.segment, text, self._reparable)
        if damage in self._flipped:
            return _flip_finding(gap.segment, self._flipped[damage], Outcome.FOUND)
        path = self._scan.segments[damage.segment]
        copy = damaged_copy(self._data, path, damage)
        where = f"journal/damaged/{copy.name}"
        text = f"bytes {damage.start:,} to {damage.end:,} are damaged; {lost}"
        if copy.exists():
            text += f"; set aside earlier as {where}"
            return Finding(Part.JOURNAL, gap.segment, text, Outcome.NOTED)
        if self._repair:
            set_aside(self._data, path, damage)
            text += f"; set aside as {where}"
        outcome = Outcome.LOST if gap.loses_events else self._reparable
        return Finding(Part.JOURNAL, gap.segment, text, outcome)

    def _remembered(self) -> Iterator[Finding]:
        if self._scan.starts_at_seq <= 1:
            return
        problem = remembered_problem(self._data)
        if not problem:
            return
        self._remembered_is_wrong = True
        lost = f"last-seen pairs and duplicate ids from before event {self._scan.starts_at_seq:,}"
        if self._rows is None:
            text, outcome = f"{problem}, and so is the index: {lost} are lost", Outcome.LOST
        else:
            text, outcome = f"{problem}: only the index has {lost}", self._reparable
        yield Finding(Part.JOURNAL, remembered_path(self._data).name, text, outcome)

    def _index(self) -> Iterator[Finding]:
        if self._rows is None or self._comparison is None:
            if self._scan.events:
                yield self._wrong_index(self._index_problem)
            return
        seq, end = self._rows.position.seq, self._scan.state.seq
        if self._scan.loses_events_before(seq):
            yield from self._index_of_a_lossy_journal(seq)
        elif seq > end:
            lost = _lost(Gap("", end + 1, seq))
            text = f"position is event {seq:,}, but the journal ends with {end:,}: {lost}"
            yield self._wrong_index(text, Outcome.LOST)
        elif not self._comparison.reached:
            yield self._wrong_index(f"position is event {seq:,}, not a commit of the journal")
        else:
            if self._comparison.misplaced:
                yield self._wrong_index(self._comparison.misplaced)
            for text in self._differences():
                yield self._wrong_index(text)

    def _wrong_index(self, text: str, outcome: Outcome | None = None) -> Finding:
        self._index_is_wrong = True
        return Finding(Part.INDEX, self._data.index.name, text, outcome or self._reparable)

    def _index_of_a_lossy_journal(self, seq: int) -> Iterator[Finding]:
        if all(gap.damage in self._flipped for gap in self._scan.gaps if gap.loses_events):
            return  # compare after the journal was corrected
        differing = sum(1 for _ in self._differences())
        if differing or (self._comparison is not None and not self._comparison.reached):
            text = (
                f"position is event {seq:,}; it holds events that the journal has lost"
                f" ({differing:,} rows differ), so it is kept"
            )
            yield Finding(Part.INDEX, self._data.index.name, text, Outcome.NOTED)

    def _differences(self) -> Iterator[str]:
        assert self._comparison is not None
        assert self._rows is not None
        begins = Beginning()
        if self._scan.starts_at_seq > 1:
            begins = Beginning(self._scan.starts_at_seq, self._scan.oldest_us)
        window_us = self._settings.housekeeping.duplicate_window_ms * 1000
        now_us = max(system_clock(), self._rows.position.at_us)
        return self._comparison.differences(begins, now_us - window_us)

    def _repair_files(self) -> None:
        """Cut the unconfirmed end, seal old segments, and rewrite a wrong index."""
        if self._index_is_wrong:
            rebuild(self._data)
        else:
            recover(self._data, 0).index.close()
        if self._remembered_is_wrong:
            write_remembered(self._data)

    def _mail(self, use_index: bool) -> tuple[list[Finding], int]:
        seen = take_snapshot(self._data, use_index=use_index)
        check = MailboxCheck(self._data, seen.state, repair=self._repair)
        damaged = [gap.damage for gap in self._scan.gaps if gap.damage is not None]
        found = [
            *check.payloads(self._scan.broken_bodies),
            *check.lines(damaged, correctable=self._flipped),
        ]
        if (self._scan.storage or self._settings.storage) == "maildir":
            found += check.files()
        return found, sum(1 for _ in all_messages(seen.state))


def _lost(gap: Gap) -> str:
    """Describe the lost events."""
    if gap.last_seq is None:
        return f"events from {gap.first_seq:,} on may be lost"
    count = gap.last_seq - gap.first_seq + 1
    if count < 1:
        return "no event is lost"
    if count == 1:
        return f"event {gap.first_seq:,} is lost"
    return f"{count:,} events are lost ({gap.first_seq:,} to {gap.last_seq:,})"


def _flip_finding(segment: str, flipped: FlippedByte, outcome: Outcome) -> Finding:
    text = (
        f"byte {flipped.offset:,} is 0x{flipped.found:02x} and was 0x{flipped.wanted:02x},"
        " as the checksum proves"
    )
    return Finding(Part.JOURNAL, segment, text, outcome)
