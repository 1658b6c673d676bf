"""The SQLite index: a checkpoint of the state, so that opening reads only the journal's end.

Failures and answers:
  deleted or corrupt    it is rebuilt from the journal
  behind the journal    events after `position` are applied from the journal
  ahead of the journal  (the journal lost its unsynced end) it is rebuilt
  process killed        tables and `position` change in one transaction, or not at all
"""

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from waypost.policy.bounds import last_seen_max_pairs
from waypost.policy.reserved_names import OUTBOX_PREFIX
from waypost.relay.journal.segments import Location, Position
from waypost.relay.state.directories import journaled_directory
from waypost.relay.state.duplicates import Duplicate
from waypost.relay.state.mailbox import (
    DEAD,
    GONE,
    LEASED,
    PENDING,
    SCHEDULED,
    DeadLetterCause,
    Message,
)
from waypost.relay.state.relay_state import RelayState

log = logging.getLogger("waypost.relay")

DAMAGED = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Errors of a damaged file: SQLite's messages quote its bytes, which may not be valid text."""

FORMAT = 4
_ROWS_PER_STATEMENT = 200

_STATUS = {PENDING: "new", LEASED: "cur", DEAD: "failed", SCHEDULED: "later"}
_STATE = {status: state for state, status in _STATUS.items()}
_COLUMNS = (
    "order",
    "endpoint",
    "id",
    "state",
    "sender",
    "size",
    "ttl",
    "at_us",
    "segment",
    "offset",
    "length",
    "attempt",
    "not_before_us",
    "via",
    "reason",
    "failed_at_us",
    "tier",
    "cause",
    "due_us",
)


class Changes(msgspec.Struct):
    """The content of one checkpoint."""

    position: Position
    endpoints: list[tuple[str, int | None, str]]
    messages: list[Message]
    """Copies without payloads: the relay goes on meanwhile."""
    gone: list[int]
    last_seen: Mapping[tuple[str, str], int]
    duplicates: Mapping[str, Duplicate]
    replace_all: bool = False
    forget_before_us: int = 0
    """Duplicate ids recorded before this have expired."""


class Index:
    """`<data>/index.db`. Raises one of `DAMAGED` when the file is damaged."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        in_memory = str(path) == ":memory:"
        if not in_memory and not read_only:
            # SQLite gives its other files the mode of this one.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            path.chmod(0o600)
        target = _read_only_uri(path) if read_only else str(path)
        self._connection = _connect(target, uri=read_only)
        self._read_only = read_only
        self._pairs_most = 0
        """Never less than the number of last-seen pairs, if the file is written."""
        try:
            self._begin()
        except DAMAGED:
            self._connection.close()
            raise
        # Lookups run while another thread writes a checkpoint.
        self._reader = self._connection if in_memory else _connect(target, uri=read_only)

    def _begin(self) -> None:
        if self._read_only:
            # One snapshot of all tables, even while the owner writes a checkpoint.
            self._connection.execute("begin")
            return
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = normal")
        if not self._connection.execute("select count(*) from sqlite_master").fetchone()[0]:
            # Only in a new file: a table missing from an old file must not look empty.
            self._connection.executescript(_statement("schema.sql"))
        else:
            # Not rebuilt from the journal, which may no longer have all last-seen pairs.
            for older in range(2, FORMAT):
                known = f"select 1 from position where format = {older}"
                if self._connection.execute(known).fetchone():
                    self._connection.executescript(_statement(f"from_format_{older}.sql"))
        self._pairs_most = self._count_pairs()

    def close(self) -> None:
        """Merge the write-ahead log into the file, and close it."""
        if self._reader is not self._connection:
            self._reader.close()
        if not self._read_only:
            try:
                self._connection.execute("pragma wal_checkpoint(truncate)")
            except sqlite3.Error as problem:  # the log is as valid as the file
                log.warning("index: write-ahead log not merged into the file: %s", problem)
        self._connection.close()

    def abandon(self) -> None:
        """Close a file that will be discarded."""
        self._reader.close()
        self._connection.close()

    def position(self) -> Position | None:
        """Return the position of the last checkpoint; None if empty or of another format."""
        row = self._connection.execute(
            "select format, seq, at_us, segment, offset from position"
        ).fetchone()
        return Position(*row[1:]) if row and row[0] == FORMAT else None

    def load(self, state: RelayState) -> None:
        """Fill an empty state with endpoints and messages."""
        for row in self._connection.execute(
            "select subject, since_us, directory from endpoints order by since_us, subject"
        ):
            state.restore_endpoint(*row)
        for row in self._connection.execute("select * from messages order by ordering"):
            message = from_row(row)
            is_outgoing = message.endpoint.startswith(OUTBOX_PREFIX)
            mailbox = (state.outbox if is_outgoing else state.mailbox)(message.endpoint)
            (mailbox.add_dead if message.state is DEAD else mailbox.add)(message)
            if message.state is SCHEDULED:
                state.scheduled.add(message)

    def last_seen(self, pair: tuple[str, str]) -> int | None:
        """Return when (ms) the first of `pair` last wrote to the second, or None."""
        row = self._reader.execute(
            "select at_ms from last_seen where sender = ? and recipient = ?", pair
        ).fetchone()
        return row[0] if row else None

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield every last-seen pair."""
        yield from self._reader.execute("select sender, recipient from last_seen")

    def newest_last_seen(self) -> Iterator[tuple[tuple[str, str], int]]:
        """Yield every pair and its time (ms), the latest first."""
        for sender, recipient, at_ms in self._reader.execute(
            "select sender, recipient, at_ms from last_seen order by at_ms desc"
        ):
            yield (sender, recipient), at_ms

    def duplicate(self, message_id: str) -> Duplicate | None:
        """Return the first result of an id chosen by its sender, or None."""
        row = self._reader.execute(
            "select at_us, result from duplicates where id = ?", (message_id,)
        ).fetchone()
        return _duplicate(*row) if row is not None else None

    def duplicate_keys(self) -> Iterator[str]:
        """Yield the key of every id chosen by its sender."""
        for (key,) in self._reader.execute("select id from duplicates"):
            yield key

    def newest_duplicates(self) -> Iterator[tuple[str, Duplicate]]:
        """Yield every id chosen by its sender with its first result, the latest first."""
        for message_id, at_us, result in self._reader.execute(
            "select id, at_us, result from duplicates order by at_us desc"
        ):
            yield message_id, _duplicate(at_us, result)

    def restore(self, tables: Iterable[tuple[str, Sequence[tuple[str | int, ...]]]]) -> None:
        """Put rows into tables of a new file, all or none; `position` stays empty."""
        self._connection.execute("begin immediate")
        try:
            for table, rows in tables:
                self._put(table, rows)
        except BaseException:
            self._connection.execute("rollback")
            raise
        self._connection.execute("commit")
        self._pairs_most = self._count_pairs()

    def write(self, changes: Changes) -> None:
        """Apply `changes` in one transaction."""
        run = self._connection.execute
        run("begin immediate")
        try:
            if changes.replace_all:
                run("delete from endpoints")
                run("delete from messages")
            ended = [subject for subject, at_us, _ in changes.endpoints if at_us is None]
            self._delete("endpoints", "subject", ended)
            self._put("endpoints", [row for row in changes.endpoints if row[1] is not None])
            self._delete("messages", "ordering", changes.gone)
            self._put("messages", map(to_row, changes.messages))
            seen = changes.last_seen.items()
            self._put("last_seen", ((*pair, at_ms) for pair, at_ms in seen))
            self._pairs_most += len(seen)
            self._forget_surplus_pairs()
            firsts = changes.duplicates.items()
            self._put("duplicates", ((key, one.at_us, one.text) for key, one in firsts))
            if changes.forget_before_us:
                run("delete from duplicates where at_us < ?", (changes.forget_before_us,))
            at = changes.position
            self._put("position", [(1, FORMAT, at.seq, at.at_us, at.segment, at.offset)])
            run("commit")
        except BaseException:
            if self._connection.in_transaction:  # SQLite may have rolled back by itself
                run("rollback")
            raise

    def _forget_surplus_pairs(self) -> None:
        """Forget some last-seen pairs if there are too many; a tenth at once, as it takes long."""
        if self._pairs_most <= last_seen_max_pairs:
            return
        self._pairs_most = self._count_pairs()
        if self._pairs_most > last_seen_max_pairs:
            surplus = self._pairs_most - least_remembered_pairs()
            self._connection.execute(_statement("forget_pairs.sql"), (surplus,))
            self._pairs_most -= surplus
            log.info("index: %d last-seen pairs forgotten", surplus)

    def _count_pairs(self) -> int:
        return int(self._connection.execute("select count(*) from last_seen").fetchone()[0])

    def _put(self, table: str, rows: Iterable[tuple[str | int | None, ...]]) -> None:
        """Insert or replace rows, many per statement.

        Each statement releases the GIL once; with one statement per row, this thread and the event
        loop would contend for it all the time. `rows` may be a generator: then no long work holds
        the GIL between two statements.
        """
        left = iter(rows)
        while some := list(islice(left, _ROWS_PER_STATEMENT)):
            marks = ",".join([f"({','.join('?' * len(some[0]))})"] * len(some))
            values = [value for row in some for value in row]
            self._connection.execute(f"insert or replace into {table} values {marks}", values)

    def _delete(self, table: str, key: str, values: Sequence[str | int]) -> None:
        for start in range(0, len(values), _ROWS_PER_STATEMENT):
            some = values[start : start + _ROWS_PER_STATEMENT]
            marks = ",".join("?" * len(some))
            self._connection.execute(f"delete from {table} where {key} in ({marks})", some)

    def damage(self) -> str:
        """Return the damage that SQLite finds in the file, or ""."""
        found = [str(row[0]) for row in self._connection.execute("pragma quick_check(3)")]
        return "" if found == ["ok"] else "; ".join(found)

    def rows(self, table: str) -> list[tuple[object, ...]]:
        """Return every row of a table in key order, for comparing two indexes."""
        return sorted(self._connection.execute(f"select * from {table}").fetchall())


def least_remembered_pairs() -> int:
    """Return how many last-seen pairs are left when some were forgotten."""
    return last_seen_max_pairs - last_seen_max_pairs // 10


def take_changes(state: RelayState, position: Position, *, replace_all: bool = False) -> Changes:
    """Take the changes of `state` since the last checkpoint, and mark them as taken.

    With `replace_all`, take everything, to replace the content of the index.
    """
    if replace_all:
        state.dirty = {message.order: message for message in indexed_messages(state)}
        state.dirty_endpoints = set(state.mailboxes)
    messages: list[Message] = []
    gone: list[int] = []
    # The event loop waits for this. A copy takes a third of the time of a row, which the garbage
    # collector would also look at.
    for order, message in state.dirty.items():
        if message.state is GONE:
            gone.append(order)
        else:
            messages.append(replace(message, arrival=None, content=None))
    endpoints: list[tuple[str, int | None, str]] = []
    for subject in state.dirty_endpoints:
        mailbox = state.mailboxes.get(subject)
        if mailbox is not None and mailbox.registered:
            endpoints.append((subject, mailbox.since_us, journaled_directory(mailbox)))
        else:
            endpoints.append((subject, None, ""))
    state.dirty = {}
    state.dirty_endpoints = set()
    state.indexed_seq = position.seq
    return Changes(
        position=position,
        endpoints=endpoints,
        messages=messages,
        gone=gone,
        last_seen=state.last_seen.begin_flush(),
        duplicates=state.duplicates.begin_flush(),
        replace_all=replace_all,
    )


def all_messages(state: RelayState) -> Iterable[Message]:
    """Yield every message in a mailbox, live or dead."""
    for mailbox in state.mailboxes.values():
        yield from mailbox.live.values()
        yield from mailbox.dead.values()


def indexed_messages(state: RelayState) -> Iterable[Message]:
    """Yield every message whose line in the journal is needed, also those in outboxes."""
    yield from all_messages(state)
    yield from (one for outbox in state.outboxes.values() for one in outbox.live.values())


def to_row(m: Message) -> tuple[str | int, ...]:
    """Return a message as a row of the table `messages`."""
    at = m.location
    return (
        m.order,
        m.endpoint,
        m.id,
        _STATUS[m.state],
        m.sender,
        m.size,
        m.ttl,
        m.at_us,
        at.segment,
        at.offset,
        at.length,
        m.attempt,
        m.not_before_us,
        m.via,
        m.reason,
        m.failed_at_us,
        m.tier,
        m.cause,
        m.due_us,
    )


def from_row(row: tuple[object, ...]) -> Message:
    """Return the message of a row of the table `messages`."""
    fields: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    location = Location(*(fields.pop(name) for name in ("segment", "offset", "length")))
    state, cause = _STATE[fields.pop("state")], DeadLetterCause(fields.pop("cause"))
    return Message(location=location, state=state, cause=cause, **fields)


def _duplicate(at_us: int, text: str) -> Duplicate:
    """Return a row of the table `duplicates`, or raise `msgspec.DecodeError`."""
    found = Duplicate(at_us, text)
    found.result()
    return found


def _read_only_uri(path: Path) -> str:
    """Return a read-only URI; it creates no files unless a write-ahead log must be read."""
    log = Path(f"{path}-wal")
    immutable = not log.exists() or log.stat().st_size == 0
    return f"file:{quote(str(path))}?mode=ro{'&immutable=1' if immutable else ''}"


def _connect(target: str, *, uri: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(target, uri=uri, isolation_level=None, check_same_thread=False)
    connection.execute("pragma busy_timeout = 5000")
    return connection


def _statement(name: str) -> str:
    return (resources.files("waypost.relay.state") / "sql" / name).read_text()
