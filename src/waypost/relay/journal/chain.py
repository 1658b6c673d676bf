"""The chain of a journal: every batch names the hash of the batch before it.

Rule 1  The chain begins with the first batch that names another one; batches of older versions
        name none, and the first chained batch names the last of them.
Rule 2  The batch before the oldest kept one is gone, so what that one names cannot be checked.
Rule 3  A link behind damaged bytes cannot hold, and is reported with them.
"""

import msgspec

from waypost.relay.journal.segments import Batch, Damage
from waypost.wire.events import encode_event
from waypost.wire.journal_batches import NO_BATCH

_UNNAMED = "it names no batch before it, although earlier batches do"
_UNLINKED = (
    "it does not follow the batch before it: one of the two was changed, or batches between them"
    " were removed, inserted or exchanged"
)
_NOT_THE_FIRST = "it is the first batch, but names one before it"
_CHANGED = "its commit line is not as a relay writes it"


class BrokenLink(msgspec.Struct, frozen=True):
    """A batch that does not continue the chain: its segment, first byte and last event.

    `damage` are the damaged bytes before it.
    """

    segment: int
    offset: int
    seq: int
    problem: str
    damage: Damage | None

    def __str__(self) -> str:
        return (
            f"the chain is broken at byte {self.offset:,}, at the batch up to event {self.seq:,}:"
            f" {self.problem}"
        )


class ChainCheck:
    """Follows the chain from the first batch of a journal to its last."""

    def __init__(self, head: str = "") -> None:
        """Begin after the batch with the hash `head`, if it is known."""
        self.batches = 0
        self.chained_from = 0
        """The first event of the first chained batch; 0 if there is none."""
        self.chained_us = 0
        """The time of that batch."""
        self.head = head
        """The hash of the last batch; "" before the first one."""
        self.broken: list[BrokenLink] = []
        self._damage: Damage | None = None

    def note(self, piece: Batch | Damage) -> None:
        """Check the next piece of the journal."""
        if isinstance(piece, Damage):
            self._damage = piece
            return
        commit = piece.commit
        self.broken += [
            BrokenLink(piece.segment, piece.start, commit.seq, problem, self._damage)
            for problem in self._problems(piece)
        ]
        if commit.prev and not self.chained_from:
            self.chained_from = commit.seq - commit.count + 1
            self.chained_us = commit.at_us
        self.batches += 1
        self.head, self._damage = piece.hash, None

    def _problems(self, batch: Batch) -> list[str]:
        commit = batch.commit
        if not commit.prev:
            return [_UNNAMED] if self.chained_from else []
        problems = []
        if self.head and commit.prev != self.head:
            problems.append(_UNLINKED)
        elif not self.head and commit.seq == commit.count and commit.prev != NO_BATCH:
            problems.append(_NOT_THE_FIRST)
        if batch.data[batch.stop : batch.end] != encode_event(commit) + b"\n":
            problems.append(_CHANGED)
        return problems
