"""Salvages mailboxes whose journal is lost: makes a new journal from the Maildir files.

Rule 1  An existing journal is never changed. The new one is written beside it and appears complete.
Rule 2  A file is evidence, not truth: its name, subjects, budget, times and size are checked like
        those of a message from a stranger. What cannot be salvaged is reported and stays in place.
Rule 3  Every message is decided by the policy, under settings without limits that the new journal
        begins with. So a replay of it decides the same.

Pending and leased messages become pending, dead letters stay dead letters. Acknowledged messages,
histories and ids of messages that are gone cannot be salvaged; last-seen pairs are, if the index is
readable.
"""

import asyncio
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from waypost.files import read_file
from waypost.policy.admission import admit_delivery
from waypost.policy.backpressure import BackpressureConfig
from waypost.policy.bounds import mailbox_file_max_bytes, payload_max_bytes
from waypost.policy.breakers import CircuitBreakerConfig, CircuitBreakers
from waypost.policy.budgets import Budget, create_default_budget
from waypost.policy.errors import InvalidMessage, WaypostError
from waypost.policy.rate_limits import RateLimitConfig
from waypost.policy.settings import Settings, to_config_document
from waypost.policy.subjects import is_literal, validate_subject
from waypost.relay.clock import system_clock
from waypost.relay.data_dir import (
    DataDir,
    DirectoryLock,
    endpoint_hash,
    long_endpoint_hash,
    sync_directory,
)
from waypost.relay.errors import DataDirUnusable, RelayError
from waypost.relay.journal.journal import Journal
from waypost.relay.journal.listeners import CommitListeners
from waypost.relay.journal.segments import Position, list_segments
from waypost.relay.state.index import DAMAGED, Index
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.relay_state import RelayState
from waypost.relay.verify.index_check import IndexRows, read_index, rebuild
from waypost.wire.envelopes import stored_size
from waypost.wire.events import (
    Accepted,
    EndpointChanged,
    Failed,
    Redriven,
    Rejected,
    SettingsChanged,
)
from waypost.wire.identifiers import ulid_time_ms, validate_message_id
from waypost.wire.payloads import encode_payload

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SKIPPED_MAX = 1000
_MESSAGES_PER_SYNC = 1000
_UNLIMITED = Settings(
    rate_limit=RateLimitConfig(enabled=False),
    circuit_breaker=CircuitBreakerConfig(enabled=False),
    backpressure=BackpressureConfig(enabled=False),
)


class SkippedFile(msgspec.Struct, frozen=True):
    """A file that could not be salvaged, and why."""

    file: str
    reason: str


class SalvageReport(msgspec.Struct):
    """What was salvaged; `skipped` names at most 1,000 of the `skipped_count` other files."""

    data_dir: str
    endpoints: int = 0
    pending: int = 0
    dead_letters: int = 0
    pairs: int = 0
    skipped_count: int = 0
    skipped: list[SkippedFile] = []


class _StoredEnvelope(msgspec.Struct, kw_only=True):
    id: str
    subject: str
    sender: str
    reply_to: str | None = None
    budget: Budget
    created_at: datetime
    payload: msgspec.Raw


class _StoredDeadLetter(msgspec.Struct):
    envelope: _StoredEnvelope
    reason: str
    failed_at: datetime


class _Step(msgspec.Struct, frozen=True, order=True, gc=False):
    """The arrival of a message, or its end as a dead letter, in the order of the new journal."""

    at_us: int
    is_failure: bool
    id: str
    endpoint: str
    path: str


class _Read(msgspec.Struct):
    """A checked file: its arrival, payload, and if it is a dead letter, reason and time."""

    event: Accepted
    content: bytes
    reason: str = ""
    failed_us: int = 0


def salvage(data: DataDir) -> SalvageReport:
    """Make a journal from the mailboxes of `data`, which has none; lock the directory meanwhile.

    Raises `RelayError` if there is a journal, or nothing to salvage.
    """
    if not data.mailboxes.is_dir():
        raise DataDirUnusable(f"{data.root} has no mailboxes/ to salvage")
    if list_segments(data.journal):
        raise RelayError(
            f"{data.root} has a journal, which is not overwritten: repair it with 'waypost verify"
            " --repair'; to salvage the mailboxes without it, move journal/ elsewhere first"
        )
    data.create()
    lock = DirectoryLock(data)
    try:
        report = asyncio.run(_Salvage(data).run())
        rebuild(data)
        return report
    finally:
        lock.release()


class _Salvage:
    def __init__(self, data: DataDir) -> None:
        self._data = data
        self._new = data.root / "journal.new"
        self._now_us = system_clock()
        self._report = SalvageReport(str(data.root), skipped=[])
        self._index = _readable_index(data)
        self._directories: dict[str, str] = {}
        self._breakers = CircuitBreakers(_UNLIMITED.circuit_breaker)

    async def run(self) -> SalvageReport:
        shutil.rmtree(self._new, ignore_errors=True)
        self._new.mkdir(mode=0o700)
        steps = sorted(self._search())
        journal = Journal(self._new, Position(), _UNLIMITED, listeners=CommitListeners())
        try:
            ledger = Ledger(journal, RelayState(), lambda: self._now_us)
            self._begin(ledger, steps)
            for number, step in enumerate(steps):
                self._carry_out(ledger, step)
                if not number % _MESSAGES_PER_SYNC:
                    await ledger.sync()
            if self._index is not None:
                pairs = self._index.last_seen.items()
                self._report.pairs = ledger.record_pairs((*pair, row[0]) for pair, row in pairs)
            await ledger.sync()
        finally:
            await journal.close()
        self._publish()
        return self._report

    def _search(self) -> Iterator[_Step]:
        """Yield the steps of every file that can be salvaged; report the other files."""
        for directory in sorted(self._data.mailboxes.iterdir()):
            ids: set[str] = set()
            for path in _files(directory):
                read = self._read(str(path))
                if read is None:
                    continue
                event = read.event
                if event.id in ids:  # a crash left it in two folders
                    self._skip(str(path), "the message was found in another folder, too")
                    continue
                ids.add(event.id)
                self._directories[event.endpoint] = directory.name
                yield _Step(event.at_us, False, event.id, event.endpoint, str(path))
                if path.parent.name == "failed":
                    failed_us = max(read.failed_us, event.at_us)
                    yield _Step(failed_us, True, event.id, event.endpoint, str(path))

    def _read(self, path: str) -> _Read | None:
        try:
            content = read_file(path, mailbox_file_max_bytes, follow_links=False)
            return _check(Path(path), content, self._now_us)
        except OSError as problem:
            self._skip(path, problem.strerror or str(problem))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            self._skip(path, f"not a stored message: {problem}")
        except WaypostError as problem:
            self._skip(path, str(problem))
        return None

    def _skip(self, path: str, reason: str) -> None:
        self._report.skipped_count += 1
        if len(self._report.skipped) < _SKIPPED_MAX:
            name = os.path.relpath(path, self._data.root)
            self._report.skipped.append(SkippedFile(name, reason))

    def _begin(self, ledger: Ledger, steps: list[_Step]) -> None:
        """Journal the settings of the salvage, and the endpoints: usual directories first."""
        at_us = steps[0].at_us if steps else self._now_us
        ledger.record(
            SettingsChanged(at_us=at_us, cause="salvage", settings=to_config_document(_UNLIMITED))
        )
        endpoints = {
            subject: (0, "" if name == endpoint_hash(subject) else name)
            for subject, name in self._directories.items()
        }
        if self._index is not None:
            endpoints.update(self._index.endpoints)
        for subject, (since_us, directory) in sorted(
            endpoints.items(), key=lambda item: (item[1][1] != "", item[0])
        ):
            ledger.record(
                EndpointChanged(
                    at_us=at_us,
                    endpoint=subject,
                    action="registered",
                    since_us=since_us,
                    directory=directory,
                )
            )
        self._report.endpoints = len(endpoints)

    def _carry_out(self, ledger: Ledger, step: _Step) -> None:
        read = self._read(step.path)
        if read is None:
            return  # it changed meanwhile
        if not step.is_failure:
            self._add(ledger, read, is_dead=Path(step.path).parent.name == "failed")
        elif step.id in ledger.state.mailbox(step.endpoint).live:
            ledger.record(
                Failed(
                    at_us=step.at_us,
                    endpoint=step.endpoint,
                    id=step.id,
                    reason=read.reason,
                    via="salvage",
                )
            )

    def _add(self, ledger: Ledger, read: _Read, *, is_dead: bool) -> None:
        """Journal the arrival of a message as the policy decides it."""
        event = read.event
        occupancy = ledger.state.mailbox(event.endpoint).occupancy
        at_ms = event.at_us // 1000
        verdict = admit_delivery(event, occupancy, self._breakers, _UNLIMITED, at_ms)
        event.depth, event.depth_bytes = verdict.depth, verdict.depth_bytes
        if verdict.reason is None:
            ledger.record_arrival(event, read.content)
        else:
            fields = msgspec.structs.asdict(event)
            del fields["deferred"], fields["probe"]
            detail = read.reason or verdict.detail
            rejected = Rejected(**fields, reason=verdict.reason, detail=detail)
            ledger.record_arrival(rejected, read.content)
            if not is_dead:  # only a redriven message is pending beyond its budget
                ledger.record(Redriven(at_us=event.at_us, endpoint=event.endpoint, id=event.id))
        if is_dead:
            self._report.dead_letters += 1
        else:
            self._report.pending += 1

    def _publish(self) -> None:
        """Give the new journal its name; keep the index and the rest of the old one."""
        if self._data.index.exists():
            os.replace(self._data.index, f"{self._data.index}.lost")
        for leftover in (f"{self._data.index}-wal", f"{self._data.index}-shm"):
            Path(leftover).unlink(missing_ok=True)
        if any(self._data.journal.iterdir()):
            lost = next(
                path
                for number in range(1, 1_000_000)
                if not (path := self._data.root / f"journal.lost-{number}").exists()
            )
            os.rename(self._data.journal, lost)
        os.rename(self._new, self._data.journal)
        sync_directory(self._data.root)


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files of a mailbox, those first that a crash leaves besides an older one."""
    for folder in ("failed", "cur", "new"):
        if not directory.is_symlink() and (directory / folder).is_dir():
            for path in sorted((directory / folder).iterdir()):
                if not path.name.startswith("."):
                    yield path


def _readable_index(data: DataDir) -> IndexRows | None:
    """Return the rows of the index, after merging its write-ahead log; None if it is lost."""
    if not data.index.exists():
        return None
    try:
        Index(data.index).close()
    except DAMAGED:
        return None
    return read_index(data)[0]


def _check(path: Path, raw: bytes, now_us: int) -> _Read:
    """Return the message of a file, or raise an error that says what is wrong with it."""
    if path.parent.name != "failed":
        return _check_envelope(path, msgspec.json.decode(raw, type=_StoredEnvelope), now_us)
    stored = msgspec.json.decode(raw, type=_StoredDeadLetter)
    read = _check_envelope(path, stored.envelope, now_us)
    read.reason, read.failed_us = stored.reason, _time_us(stored.failed_at, now_us)
    return read


def _check_envelope(path: Path, envelope: _StoredEnvelope, now_us: int) -> _Read:
    if validate_message_id(envelope.id) != path.name:
        raise InvalidMessage(f"the file has the message {envelope.id}")
    validate_subject(envelope.subject, allow_wildcards=True)
    validate_subject(envelope.sender)
    if envelope.reply_to is not None:
        validate_subject(envelope.reply_to)
    endpoint = _endpoint(envelope, path.parent.parent.name)
    content = encode_payload(envelope.payload)
    if len(content) > payload_max_bytes:
        raise InvalidMessage(f"payload of {len(content):,} bytes is over the limit")
    event = Accepted(
        at_us=_time_us(envelope.created_at, now_us),
        id=envelope.id,
        sender=envelope.sender,
        subject=envelope.subject,
        endpoint=endpoint,
        reply_to=envelope.reply_to,
        chosen_id=ulid_time_ms(envelope.id) is None,
        budget=_budget_on_arrival(envelope.budget, endpoint),
    )
    event.size = stored_size(event, event.budget, endpoint, len(content))
    return _Read(event, content)


def _endpoint(envelope: _StoredEnvelope, directory: str) -> str:
    """Return the endpoint of a message: the subject or ancestor that has this directory."""
    for subject in (envelope.subject, *envelope.budget.ancestor_chain[::-1]):
        if is_literal(subject) and directory in (
            endpoint_hash(subject),
            long_endpoint_hash(subject),
        ):
            return validate_subject(subject)
    raise InvalidMessage(f"no subject in the message belongs to the mailbox {directory}")


def _time_us(at: datetime, now_us: int) -> int:
    """Return a time in µs, at most `now_us`: the clock of a relay never goes back."""
    if at.tzinfo is None or at < _EPOCH:
        raise InvalidMessage(f"invalid time {at}")
    return min((at - _EPOCH) // timedelta(microseconds=1), now_us)


def _budget_on_arrival(left: Budget, endpoint: str) -> Budget:
    """Return the budget from before the delivery to `endpoint`, which spent one hop and call."""
    chain = left.ancestor_chain
    return create_default_budget(
        0,
        hop_count=max(0, left.hop_count - 1) if left.hop_count >= 0 else left.hop_count,
        max_hops=left.max_hops,
        ancestor_chain=chain[:-1] if chain and chain[-1] == endpoint else chain,
        ttl=left.ttl,
        call_budget_remaining=left.call_budget_remaining + 1,
    )
