"""One walk over all mailboxes: totals, and a row for each of the fullest.

Rule 1  The walk gives way to others every few hundred mailboxes, so that a relay with many of
        them is not held up; its numbers are of about the same moment, not of one.
Rule 2  There are at most `ROWS_MAX` rows, whatever there is; totals are of everything.
"""

import asyncio
import heapq
from collections.abc import Collection
from itertools import islice

import msgspec

from waypost.policy.backpressure import check_backpressure
from waypost.policy.settings import Settings
from waypost.relay.state.mailbox import Mailbox
from waypost.relay.state.relay_state import RelayState

ROWS_MAX = 10_000
AT_ONCE = 250
"""Mailboxes looked at before others have their turn: well below a millisecond."""


class InboxRow(msgspec.Struct, frozen=True, gc=False):
    """How one inbox stands. `senders` have something waiting in it; `connected`: its agent is here.

    `pressure` is the share of its cap on messages that is in use.
    """

    subject: str
    pending: int
    leased: int
    dead: int
    bytes: int
    pressure: float
    senders: int
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


async def take_census(state: RelayState, settings: Settings, connected: Collection[str]) -> Census:
    """Look at every mailbox once."""
    leased: dict[str, int] = {}
    for endpoint, _ in state.leased:
        leased[endpoint] = leased.get(endpoint, 0) + 1
    census = Census(rows=[])
    walk = iter(list(state.mailboxes.values()))
    while some := list(islice(walk, AT_ONCE)):
        for mailbox in some:
            row = _row(mailbox, leased.get(mailbox.subject, 0), settings, connected)
            census.pending += row.pending
            census.leased += row.leased
            census.dead += row.dead
            census.bytes += row.bytes
            census.pressure = max(census.pressure, row.pressure)
            census.rows.append(row)
        await asyncio.sleep(0)
    census.inboxes = len(census.rows)
    if census.inboxes > ROWS_MAX:
        census.rows = fullest(census.rows, ROWS_MAX)
    return census


def fullest(rows: list[InboxRow], count: int) -> list[InboxRow]:
    """The `count` rows with the most messages in them, the fullest first; by name among equals."""
    return heapq.nsmallest(count, rows, key=lambda one: (-one.pending - one.leased, one.subject))


def _row(mailbox: Mailbox, leased: int, settings: Settings, connected: Collection[str]) -> InboxRow:
    held = mailbox.occupancy
    pressure = check_backpressure(held.depth, settings.backpressure).pressure
    return InboxRow(
        subject=mailbox.subject,
        pending=max(held.depth - leased, 0),  # it may have moved since the leases were counted
        leased=leased,
        dead=len(mailbox.dead),
        bytes=held.bytes,
        pressure=round(pressure, 4),
        senders=len(held.by_sender),
        connected=mailbox.subject in connected,
    )
