"""Statistics of a relay: its mailboxes, its totals, and its metrics as a whole.

Everything is derived from the state at the moment of the call; nothing is counted twice.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from waypost.policy.backpressure import check_backpressure
from waypost.policy.breakers import CircuitBreakerState
from waypost.policy.settings import Settings
from waypost.relay.state.mailbox import Mailbox
from waypost.relay.state.relay_state import RelayState

TOP_SENDERS_MAX = 10


class HasProblem(Protocol):
    """A part of the relay that may need an operator's attention; empty while it does not."""

    @property
    def problem(self) -> str: ...


class MailboxCounts(msgspec.Struct, frozen=True, gc=False):
    """Messages and bytes of one mailbox, and the number of its senders.

    `pressure` is the used share of the cap on messages, `oldest_us` the arrival of the oldest
    unacknowledged message, in µs since the epoch; None without one.
    """

    subject: str
    pending: int
    scheduled: int
    leased: int
    dead: int
    bytes: int
    pressure: float
    senders: int
    oldest_us: int | None


class MailboxStats(msgspec.Struct, frozen=True):
    """One mailbox in detail; `top_senders` holds (sender, messages, bytes), most bytes first."""

    subject: str
    hash: str
    pending: int
    scheduled: int
    leased: int
    dead: int
    bytes: int
    pressure: float
    top_senders: list[tuple[str, int, int]]
    oldest_us: int | None = None


class Totals(msgspec.Struct):
    """Sums over all mailboxes; `deepest` is the message count of the fullest.

    `oldest_us` is the arrival of the oldest unacknowledged message; None without one.
    """

    pending: int = 0
    scheduled: int = 0
    leased: int = 0
    dead: int = 0
    bytes: int = 0
    deepest: int = 0
    oldest_us: int | None = None


class Survey(msgspec.Struct, frozen=True):
    """The totals of all `mailboxes`, and the counts of the fullest, in that order.

    `pressure` is that of the fullest, `oldest` the mailbox with the oldest unacknowledged message.
    """

    totals: Totals
    mailboxes: int
    pressure: float
    oldest: MailboxCounts | None
    fullest: list[MailboxCounts]


class JournalStatus(msgspec.Struct, frozen=True):
    """The last event number, the number of commits, and whether the journal can be written.

    `full`: the disk is full, or no descriptor is free (`full_because`), and writing resumes when
    there is room. `failure`: why the journal stopped for good, empty while it works.
    `committed_us` is the time of the last event on disk.
    """

    seq: int
    commits: int
    full: bool
    failure: str
    full_because: str = ""
    committed_us: int = 0


class RelayMetrics(msgspec.Struct, frozen=True):
    """`by_status` counts the messages held now; `events` counts since the relay was opened."""

    seq: int
    commits: int
    total_messages: int
    by_status: dict[str, int]
    events: dict[str, int]
    rejected: dict[str, int]
    endpoints: list[MailboxStats]
    breakers: dict[str, CircuitBreakerState]
    senders_tracked: int
    storage: str
    durability: str
    storage_full: bool
    problems: list[str]


def pressure_of(mailbox: Mailbox, settings: Settings) -> float:
    """Return the used share of the mailbox's cap on messages."""
    return check_backpressure(mailbox.occupancy.depth, settings.backpressure).pressure


def count_mailbox(mailbox: Mailbox, settings: Settings) -> MailboxCounts:
    """Return the counts of one mailbox."""
    held = mailbox.occupancy
    return MailboxCounts(
        subject=mailbox.subject,
        pending=mailbox.pending_count,
        scheduled=mailbox.scheduled_count,
        leased=mailbox.leased_count,
        dead=len(mailbox.dead),
        bytes=held.bytes,
        pressure=round(pressure_of(mailbox, settings), 4),
        senders=len(held.by_sender),
        oldest_us=mailbox.oldest_us,
    )


def mailbox_stats(state: RelayState, settings: Settings) -> Iterator[MailboxStats]:
    """Yield the statistics of every mailbox that is registered or holds messages."""
    for mailbox in state.mailboxes.values():
        yield stats_of(mailbox, settings)


def stats_of(mailbox: Mailbox, settings: Settings) -> MailboxStats:
    """Return the statistics of one mailbox."""
    held = sorted(mailbox.occupancy.by_sender.items(), key=lambda item: -item[1][1])
    return MailboxStats(
        subject=mailbox.subject,
        hash=mailbox.hash,
        pending=mailbox.pending_count,
        scheduled=mailbox.scheduled_count,
        leased=mailbox.leased_count,
        dead=len(mailbox.dead),
        bytes=mailbox.occupancy.bytes,
        pressure=pressure_of(mailbox, settings),
        top_senders=[(sender, *usage) for sender, usage in held[:TOP_SENDERS_MAX]],
        oldest_us=mailbox.oldest_us,
    )


def add_up(totals: Totals, mailboxes: Iterable[Mailbox]) -> None:
    """Add mailboxes to `totals`."""
    for mailbox in mailboxes:
        if mailbox.empty:
            continue
        depth = mailbox.occupancy.depth
        totals.pending += mailbox.pending_count
        totals.scheduled += mailbox.scheduled_count
        totals.leased += mailbox.leased_count
        totals.dead += len(mailbox.dead)
        totals.bytes += mailbox.occupancy.bytes
        totals.deepest = max(totals.deepest, depth)
        oldest_us = mailbox.oldest_us
        if oldest_us is not None and (totals.oldest_us is None or oldest_us < totals.oldest_us):
            totals.oldest_us = oldest_us


def summarize(totals: Totals, held: list[MailboxCounts], empty: list[str], shown: int) -> Survey:
    """Return a survey with the `shown` fullest; by name among equals.

    `held` are the mailboxes with messages. The `empty` ones come last, as far as there is room.
    """
    fullest = heapq.nsmallest(shown, held, key=_by_fill)
    fullest += [
        MailboxCounts(one, 0, 0, 0, 0, 0, 0.0, 0, None)
        for one in sorted(empty[: shown - len(fullest)])
    ]
    return Survey(
        totals=totals,
        mailboxes=len(held) + len(empty),
        pressure=max((one.pressure for one in held), default=0.0),
        oldest=min(
            (one for one in held if one.oldest_us is not None),
            key=lambda one: one.oldest_us or 0,
            default=None,
        ),
        fullest=fullest,
    )


def _by_fill(counts: MailboxCounts) -> tuple[int, str]:
    return -counts.pending - counts.scheduled - counts.leased, counts.subject
