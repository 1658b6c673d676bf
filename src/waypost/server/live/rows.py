"""Rows of the dashboard's tables: inboxes and connected agents, and what changed in them.

Rule 1  All mailboxes are counted in one walk that yields to the event loop; the counts are of
        about the same moment.
Rule 2  A table has at most `INBOX_ROWS_MAX` or `AGENT_ROWS_MAX` rows; totals cover everything.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from waypost.relay.inspection.inspector import Inspector
from waypost.relay.inspection.stats import MailboxCounts
from waypost.server.live.sse import encode_frame
from waypost.server.sessions.hub import AgentSession

INBOX_ROWS_MAX = 10_000
AGENT_ROWS_MAX = 2000


class InboxRow(MailboxCounts, frozen=True, gc=False):
    """Counts of one inbox; `connected` while its agent is connected, `stuck` while it is stuck."""

    connected: bool
    stuck: bool

    @property
    def key(self) -> str:
        """Return what identifies the row."""
        return self.subject


class InboxSnapshot(msgspec.Struct):
    """Totals of all `inboxes`, and rows of the fullest; `oldest` has the oldest message."""

    pending: int = 0
    scheduled: int = 0
    leased: int = 0
    dead: int = 0
    bytes: int = 0
    inboxes: int = 0
    pressure: float = 0.0
    oldest: InboxRow | None = None
    rows: list[InboxRow] = []


class AgentRow(msgspec.Struct, frozen=True, gc=False):
    """One connection of an agent: its start (µs), delivery mode, address and backlog.

    `key` tells apart the connections that share a mailbox. `pending` messages are in the mailbox,
    `unconfirmed` were sent and not acknowledged, `unsent` frames are in the outbox.
    `stuck_since_us` is 0 unless it shows no sign of life.
    """

    key: str
    subject: str
    since_us: int
    receive: str
    shared: bool
    address: str
    pending: int
    unconfirmed: int
    unsent: int
    stuck_since_us: int


class Row(Protocol):
    """A row is identified by its key, and equal to itself while nothing in it changes."""

    @property
    def key(self) -> str: ...


R = TypeVar("R", bound=Row)


class Rows(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Rows that changed and keys of those `gone`; with `whole`, all rows of the table.

    `total` counts the rows that are not shown, too.
    """

    at_us: int
    total: int
    rows: list[object]
    gone: list[str] = []
    whole: bool = False


class RowTable(Generic[R]):
    """The rows of one table by key, now and before the last `replace`."""

    def __init__(self) -> None:
        self._rows: dict[str, R] = {}
        self._before: dict[str, R] = {}
        self._total = 0
        self._at_us = 0

    def replace(self, rows: Iterable[R], total: int, at_us: int) -> None:
        """Replace all rows."""
        self._before, self._rows = self._rows, {row.key: row for row in rows}
        self._total, self._at_us = total, at_us

    def changes(self) -> bytes:
        """Return the frame with the changes of the last `replace`."""
        before = self._before
        changed = [row for key, row in self._rows.items() if before.get(key) != row]
        gone = [key for key in before if key not in self._rows]
        rows = Rows(at_us=self._at_us, total=self._total, rows=[*changed], gone=gone)
        return encode_frame("rows", rows)

    def whole(self) -> bytes:
        """Return the frame with all rows."""
        rows = Rows(at_us=self._at_us, total=self._total, rows=[*self._rows.values()], whole=True)
        return encode_frame("rows", rows)


async def take_inbox_snapshot(inspector: Inspector, connected: Mapping[str, bool]) -> InboxSnapshot:
    """Count every mailbox once; `connected` are agents, and whether each is stuck."""
    snapshot = InboxSnapshot(rows=[])
    async for counts in inspector.count_mailboxes():
        for one in counts:
            snapshot.pending += one.pending
            snapshot.scheduled += one.scheduled
            snapshot.leased += one.leased
            snapshot.dead += one.dead
            snapshot.bytes += one.bytes
            snapshot.pressure = max(snapshot.pressure, one.pressure)
            row = _inbox_row(one, one.subject in connected, connected.get(one.subject, False))
            snapshot.rows.append(row)
            if _is_older(row, snapshot.oldest):
                snapshot.oldest = row
    snapshot.inboxes = len(snapshot.rows)
    if snapshot.inboxes > INBOX_ROWS_MAX:
        snapshot.rows = await asyncio.to_thread(fullest, snapshot.rows, INBOX_ROWS_MAX)
    return snapshot


def fullest(rows: list[InboxRow], count: int) -> list[InboxRow]:
    """Return the `count` rows with the most messages, the fullest first; by name among equals."""
    return heapq.nsmallest(count, rows, key=lambda one: (-one.pending - one.leased, one.subject))


def agent_rows(agents: Sequence[AgentSession], inspector: Inspector) -> list[AgentRow]:
    """Return the rows of the connections that are oldest, at most `AGENT_ROWS_MAX`."""
    unconfirmed: Counter[str] = Counter()
    for one in agents:
        unconfirmed[one.subject] += one.unconfirmed
    return [
        AgentRow(
            key=str(one.number),
            subject=one.subject,
            since_us=one.since_us,
            receive=one.receive,
            shared=one.shared,
            address=one.address,
            pending=max(inspector.depth(one.subject) - unconfirmed[one.subject], 0),
            unconfirmed=one.unconfirmed,
            unsent=one.unsent,
            stuck_since_us=one.stuck_since_us,
        )
        for one in agents[:AGENT_ROWS_MAX]
    ]


def _is_older(row: InboxRow, other: InboxRow | None) -> bool:
    if row.oldest_us is None:
        return False
    return other is None or other.oldest_us is None or row.oldest_us < other.oldest_us


def _inbox_row(counts: MailboxCounts, connected: bool, stuck: bool) -> InboxRow:
    return InboxRow(
        counts.subject,
        counts.pending,
        counts.scheduled,
        counts.leased,
        counts.dead,
        counts.bytes,
        counts.pressure,
        counts.senders,
        counts.oldest_us,
        connected,
        stuck,
    )
