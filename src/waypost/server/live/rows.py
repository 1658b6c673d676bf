"""One walk over all mailboxes: totals, and a row for each of the fullest.

Rule 1  The walk gives way to others every few hundred mailboxes, so that a relay with many of
        them is not held up; its numbers are of about the same moment, not of one.
Rule 2  There are at most `ROWS_MAX` rows, whatever there is; totals are of everything.
"""

import heapq
from collections.abc import Collection

import msgspec

from waypost.relay.inspection.inspector import Inspector
from waypost.relay.inspection.stats import MailboxCounts

ROWS_MAX = 10_000


class InboxRow(MailboxCounts, frozen=True, gc=False):
    """Counts of one inbox; `connected` is true while its agent is connected."""

    connected: bool


class Census(msgspec.Struct):
    """`rows` are those of the fullest inboxes, of `inboxes`."""

    pending: int = 0
    leased: int = 0
    dead: int = 0
    bytes: int = 0
    inboxes: int = 0
    pressure: float = 0.0
    rows: list[InboxRow] = []


async def take_census(inspector: Inspector, connected: Collection[str]) -> Census:
    """Count every mailbox once."""
    census = Census(rows=[])
    async for counts in inspector.count_mailboxes():
        for one in counts:
            census.pending += one.pending
            census.leased += one.leased
            census.dead += one.dead
            census.bytes += one.bytes
            census.pressure = max(census.pressure, one.pressure)
            census.rows.append(_row(one, one.subject in connected))
    census.inboxes = len(census.rows)
    if census.inboxes > ROWS_MAX:
        census.rows = fullest(census.rows, ROWS_MAX)
    return census


def fullest(rows: list[InboxRow], count: int) -> list[InboxRow]:
    """The `count` rows with the most messages in them, the fullest first; by name among equals."""
    return heapq.nsmallest(count, rows, key=lambda one: (-one.pending - one.leased, one.subject))


def _row(counts: MailboxCounts, connected: bool) -> InboxRow:
    return InboxRow(
        counts.subject,
        counts.pending,
        counts.leased,
        counts.dead,
        counts.bytes,
        counts.pressure,
        counts.senders,
        connected,
    )
