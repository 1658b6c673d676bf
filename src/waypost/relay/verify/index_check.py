"""Compares the index with the journal: every row must equal that of a state built from scratch.

The index may hold more than the journal. When retention has deleted old segments, last-seen pairs
and duplicate ids of that time are only in the index; endpoints are journaled again, but only after
the index's position; and messages removed since then are no longer in the journal. None of that
is an error. Duplicate ids past their window may be missing, and so may last-seen pairs if there are
about as many as the bound allows, and the tiers of messages from before the index had them.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from waypost.relay.data_dir import DataDir
from waypost.relay.journal.segments import Batch, Position, list_segments, read_segment
from waypost.relay.state.duplicates import Duplicate, is_forwarded
from waypost.relay.state.index import (
    DAMAGED,
    Changes,
    Index,
    least_remembered_pairs,
    take_changes,
    to_row,
)
from waypost.relay.state.recovery import RecoveryReport, recover
from waypost.relay.state.relay_state import RelayState

Rows = dict[Any, tuple[Any, ...]]

_MESSAGE_COLUMNS = (
    "ordering",
    "endpoint",
    "id",
    "status",
    "sender",
    "size",
    "ttl_ms",
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

_SEGMENT = _MESSAGE_COLUMNS.index("segment")
_TIER = _MESSAGE_COLUMNS.index("tier")


class IndexRows(msgspec.Struct):
    """The rows of an index at one instant."""

    position: Position
    endpoints: Rows
    messages: Rows
    last_seen: Rows
    duplicates: Rows


def read_index(data: DataDir) -> tuple[IndexRows | None, str]:
    """Read the rows of `index.db`; return None and the problem if that fails. Change nothing."""
    if not data.index.exists():
        return None, "missing"
    try:
        index = Index(data.index, read_only=True)
    except DAMAGED as problem:
        return None, f"cannot be read ({problem})"
    try:
        damage = index.damage()
        if damage:
            return None, f"damaged ({damage})"
        position = index.position()
        rows = _rows_of_index(index, position or Position())
        if position is None and any((rows.endpoints, rows.messages, rows.last_seen)):
            return None, "written by another version"
        return rows, ""
    except DAMAGED as problem:
        return None, f"cannot be read ({problem})"
    finally:
        index.close()


class Beginning(msgspec.Struct, frozen=True):
    """The beginning of the journal: its first segment, and the time (µs) of its first event.

    Both are 0 if no segment was ever deleted.
    """

    segment: int = 0
    at_us: int = 0

    def may_be_after(self, table: str, row: tuple[Any, ...]) -> bool:
        """Return whether a row may be older than the journal."""
        if not self.segment:
            return False
        match table:
            case "messages":
                return bool(row[_SEGMENT] < self.segment)
            case "last_seen":
                return bool(row[0] * 1000 <= self.at_us)
            case "duplicates" if is_forwarded(row[1]):
                return True  # its time is not that of its arrival
            case _:
                return bool(row[0] <= self.at_us)


class IndexComparison:
    """Compares an index with the journal's state at the index's position."""

    def __init__(self, rows: IndexRows) -> None:
        self._rows = rows
        self._expected: IndexRows | None = None
        self.misplaced = ""
        """Why the position of the index is wrong, or ""."""
        if rows.position.seq == 0:
            self._expected = _rows_of_state(RelayState(), rows.position)

    @property
    def reached(self) -> bool:
        """Whether the journal holds the commit at the index's position."""
        return self._expected is not None

    def at_batch(self, batch: Batch, state: RelayState) -> None:
        """Call this after each batch that was applied to `state`."""
        position = self._rows.position
        if batch.commit.seq != position.seq:
            return
        self._expected = _rows_of_state(state, position)
        stands = (position.segment, position.offset)
        if stands not in ((batch.segment, batch.end), (position.seq + 1, 0)):
            segment, offset = stands
            self.misplaced = f"position is byte {offset} of segment {segment}, not at a commit"

    def differences(self, begins: Beginning, duplicates_since_us: int) -> Iterator[str]:
        """Yield a description of each row that differs from the journal.

        Duplicate ids before `duplicates_since_us` may be missing.
        """
        expected, rows = self._expected, self._rows
        if expected is None:
            return
        for name in ("endpoints", "messages", "last_seen", "duplicates"):
            found, wanted = getattr(rows, name), getattr(expected, name)
            for key in sorted(wanted.keys() - found.keys()):
                if name == "last_seen" and len(found) >= least_remembered_pairs():
                    continue  # it may have been forgotten
                if name != "duplicates" or wanted[key][0] >= duplicates_since_us:
                    yield f"{_title(name, key, wanted[key])} is missing"
            for key in sorted(found.keys() - wanted.keys()):
                if not begins.may_be_after(name, found[key]):
                    yield f"{_title(name, key, found[key])} should not be there"
            for key in sorted(found.keys() & wanted.keys()):
                if found[key] != wanted[key] and not _is_older(name, found[key], wanted[key]):
                    title = _title(name, key, wanted[key])
                    yield f"{title}: {_change(name, found[key], wanted[key])}"


class Rebuilt(msgspec.Struct, frozen=True):
    """The number of messages in a new index, and the report of its recovery."""

    messages: int
    report: RecoveryReport


def rebuild(data: DataDir) -> Rebuilt:
    """Rewrite `index.db` from the journal; the caller owns the directory.

    Rows older than the journal are taken over from the old index, if it is readable.
    """
    kept = _only_in_index(data)
    recovered = recover(data, 0, use_index=False)
    try:
        changes = take_changes(recovered.state, recovered.position)
        changes.last_seen = {**kept.last_seen, **changes.last_seen}
        changes.duplicates = {**kept.duplicates, **changes.duplicates}
        recovered.index.write(changes)
    finally:
        recovered.index.close()
    return Rebuilt(len(changes.messages), recovered.report)


def journal_beginning(data: DataDir) -> Beginning:
    """Return the beginning of the journal."""
    for first_seq, path in list_segments(data.journal).items():
        if first_seq == 1:
            return Beginning()
        for piece in read_segment(path, first_seq):
            if isinstance(piece, Batch):
                return Beginning(first_seq, next(piece.events())[0].at_us)
    return Beginning()


def _only_in_index(data: DataDir) -> Changes:
    kept = Changes(Position(), [], [], [], {}, {})
    begins = journal_beginning(data)
    rows = read_index(data)[0] if begins.segment else None
    if rows is not None:
        kept.last_seen = {
            pair: row[0]
            for pair, row in rows.last_seen.items()
            if begins.may_be_after("last_seen", row)
        }
        kept.duplicates = {
            key: Duplicate(*row)
            for key, row in rows.duplicates.items()
            if begins.may_be_after("duplicates", row)
        }
    return kept


def _rows_of_index(index: Index, position: Position) -> IndexRows:
    return IndexRows(
        position=position,
        endpoints={row[0]: row[1:] for row in index.rows("endpoints")},
        messages={row[0]: row for row in index.rows("messages")},
        last_seen={row[:2]: row[2:] for row in index.rows("last_seen")},
        duplicates={row[0]: row[1:] for row in index.rows("duplicates")},
    )


def _rows_of_state(state: RelayState, position: Position) -> IndexRows:
    """Return the rows of a state; its changes are marked as taken."""
    changes = take_changes(state, position)
    return IndexRows(
        position=position,
        endpoints={one[0]: one[1:] for one in changes.endpoints if one[1] is not None},
        messages={one.order: to_row(one) for one in changes.messages},
        last_seen={pair: (at_ms,) for pair, at_ms in changes.last_seen.items()},
        duplicates={key: (first.at_us, first.text) for key, first in changes.duplicates.items()},
    )


def _title(table: str, key: Any, row: tuple[Any, ...]) -> str:
    match table:
        case "endpoints":
            return f"endpoint {key}"
        case "messages":
            return f"message {row[2]} of {row[1]}"
        case "last_seen":
            return f"last-seen pair {key[0]} to {key[1]}"
        case _:
            return f"duplicate id {key}"


def _is_older(table: str, found: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """Return whether a row is equal but from an index that had no tier and no cause."""
    return table == "messages" and not found[_TIER] and found[:_TIER] == wanted[:_TIER]


def _change(table: str, found: tuple[Any, ...], wanted: tuple[Any, ...]) -> str:
    columns = {
        "endpoints": ("since_us", "directory"),
        "messages": _MESSAGE_COLUMNS,
        "last_seen": ("at_ms",),
        "duplicates": ("at_us", "result"),
    }[table]
    changed = [
        f"{column} is {has!r}, the journal has {should!r}"
        for column, has, should in zip(columns, found, wanted, strict=True)
        if has != should
    ]
    return "; ".join(changed)
