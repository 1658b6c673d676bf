"""Rows of the dashboard's tables: inboxes and connected agents, and what changed in them.

A table has at most `INBOX_ROWS_MAX` or `AGENT_ROWS_MAX` rows; its total counts all.
"""

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


def inbox_rows(counts: Iterable[MailboxCounts], agents: Mapping[str, bool]) -> list[InboxRow]:
    """Return the rows of inboxes; `agents` are connected, and each may be stuck."""
    return [
        InboxRow(
            one.subject,
            one.pending,
            one.scheduled,
            one.leased,
            one.dead,
            one.bytes,
            one.pressure,
            one.senders,
            one.oldest_us,
            one.subject in agents,
            agents.get(one.subject, False),
        )
        for one in counts
    ]


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
