"""Rows of the dashboard's tables: inboxes and connected agents, and what changed in them.

Rule 1  All mailboxes are counted in one walk that yields to the event loop; the counts are of
        about the same moment.
Rule 2  A table has at most `INBOX_ROWS_MAX` or `AGENT_ROWS_MAX` rows; totals cover everything.
"""

import asyncio
import heapq
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Generic, Protocol, TypeVar

import msgspec

from waypost.relay.inspection.inspector import Inspector
from waypost.relay.inspection.stats import MailboxCounts
from waypost.server.live.sse import encode_frame
from waypost.server.sessions.hub import AgentSession

INBOX_ROWS_MAX = 10_000
AGENT_ROWS_MAX = 2000


class InboxRow(MailboxCounts, frozen=True, gc=False):
    """Counts of one inbox; `connected` is true while its agent is connected."""

    connected: bool


class InboxSnapshot(msgspec.Struct):
    """Totals of all `inboxes`, and rows of the fullest."""

    pending: int = 0
    scheduled: int = 0
    leased: int = 0
    dead: int = 0
    bytes: int = 0
    inboxes: int = 0
    pressure: float = 0.0
    rows: list[InboxRow] = []


class AgentRow(msgspec.Struct, frozen=True, gc=False):
    """One connected agent: start of its connection (µs), delivery mode, address and backlog.

    `pending` messages are in its mailbox, `unconfirmed` were sent and not acknowledged, `unsent`
    frames are in its outbox.
    """

    subject: str
    since_us: int
    receive: str
    address: str
    pending: int
    unconfirmed: int
    unsent: int


class Row(Protocol):
    """A row is identified by its subject, and equal to itself while nothing in it changes."""

    @property
    def subject(self) -> str: ...


R = TypeVar("R", bound=Row)


class Rows(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Rows that changed and subjects that are `gone`; with `whole`, all rows of the table.

    `total` counts the rows that are not shown, too.
    """

    at_us: int
    total: int
    rows: list[object]
    gone: list[str] = []
    whole: bool = False


class RowTable(Generic[R]):
    """The rows of one table by subject, now and before the last `replace`."""

    def __init__(self) -> None:
        self._rows: dict[str, R] = {}
        self._before: dict[str, R] = {}
        self._total = 0
        self._at_us = 0

    def replace(self, rows: Iterable[R], total: int, at_us: int) -> None:
        """Replace all rows."""
        self._before, self._rows = self._rows, {row.subject: row for row in rows}
        self._total, self._at_us = total, at_us

    def changes(self) -> bytes:
        """Return the frame with the changes of the last `replace`."""
        before = self._before
        changed = [row for name, row in self._rows.items() if before.get(name) != row]
        gone = [name for name in before if name not in self._rows]
        rows = Rows(at_us=self._at_us, total=self._total, rows=[*changed], gone=gone)
        return encode_frame("rows", rows)

    def whole(self) -> bytes:
        """Return the frame with all rows."""
        rows = Rows(at_us=self._at_us, total=self._total, rows=[*self._rows.values()], whole=True)
        return encode_frame("rows", rows)


async def take_inbox_snapshot(inspector: Inspector, connected: Collection[str]) -> InboxSnapshot:
    """Count every mailbox once."""
    snapshot = InboxSnapshot(rows=[])
    async for counts in inspector.count_mailboxes():
        for one in counts:
            snapshot.pending += one.pending
            snapshot.scheduled += one.scheduled
            snapshot.leased += one.leased
            snapshot.dead += one.dead
            snapshot.bytes += one.bytes
            snapshot.pressure = max(snapshot.pressure, one.pressure)
            snapshot.rows.append(_inbox_row(one, one.subject in connected))
    snapshot.inboxes = len(snapshot.rows)
    if snapshot.inboxes > INBOX_ROWS_MAX:
        snapshot.rows = await asyncio.to_thread(fullest, snapshot.rows, INBOX_ROWS_MAX)
    return snapshot


def fullest(rows: list[InboxRow], count: int) -> list[InboxRow]:
    """Return the `count` rows with the most messages, the fullest first; by name among equals."""
    return heapq.nsmallest(count, rows, key=lambda one: (-one.pending - one.leased, one.subject))


def agent_rows(agents: Iterable[AgentSession], inspector: Inspector) -> list[AgentRow]:
    """Return the rows of the agents that connected first, at most `AGENT_ROWS_MAX`."""
    return [
        AgentRow(
            subject=one.subject,
            since_us=one.since_us,
            receive=one.receive,
            address=one.address,
            pending=max(inspector.depth(one.subject) - one.unconfirmed, 0),
            unconfirmed=one.unconfirmed,
            unsent=one.unsent,
        )
        for one in islice(agents, AGENT_ROWS_MAX)
    ]


def _inbox_row(counts: MailboxCounts, connected: bool) -> InboxRow:
    return InboxRow(
        counts.subject,
        counts.pending,
        counts.scheduled,
        counts.leased,
        counts.dead,
        counts.bytes,
        counts.pressure,
        counts.senders,
        connected,
    )
