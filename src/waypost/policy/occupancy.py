"""The occupancy of one mailbox: messages and bytes, in total, by sender, and of strangers.

Rule 1  It always equals a recount of the messages in the mailbox.
Rule 2  A sender without messages in the mailbox takes no memory.
Rule 3  A message counts as a stranger's if its sender was UNKNOWN when it arrived.
Rule 4  Victims are of the lowest rank first; within a rank, of the sender that has the most.
"""

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Protocol

from waypost.policy.tiers import ACTIVE, UNKNOWN

_NOTHING = (0, 0)


class CountedMessage(Protocol):
    """A message that was counted: with the arguments of `Occupancy.add`."""

    @property
    def sender(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def tier(self) -> int: ...


class Occupancy:
    """Message and byte counts of one mailbox; bytes are those of stored envelopes."""

    __slots__ = ("by_sender", "bytes", "depth", "strangers_bytes", "strangers_depth")

    def __init__(self) -> None:
        self.depth = 0
        self.bytes = 0
        self.strangers_depth = 0
        self.strangers_bytes = 0
        self.by_sender: dict[str, tuple[int, int]] = {}

    def add(self, sender: str, size_bytes: int, tier: int = ACTIVE) -> None:
        """Count a message of `sender`, which had `tier` when the message arrived."""
        self.depth += 1
        self.bytes += size_bytes
        if tier == UNKNOWN:
            self.strangers_depth += 1
            self.strangers_bytes += size_bytes
        by_sender = self.by_sender
        count, held = by_sender.get(sender, _NOTHING)
        by_sender[sender] = (count + 1, held + size_bytes)

    def remove_all(self, messages: Collection[CountedMessage]) -> None:
        """Stop counting messages."""
        by_sender, removed_bytes = self.by_sender, 0
        for message in messages:
            sender, size_bytes = message.sender, message.size
            count, held = by_sender[sender]
            removed_bytes += size_bytes
            if message.tier == UNKNOWN:
                self.strangers_depth -= 1
                self.strangers_bytes -= size_bytes
            if count == 1:
                del by_sender[sender]
            else:
                by_sender[sender] = (count - 1, held - size_bytes)
        self.depth -= len(messages)
        self.bytes -= removed_bytes

    def held_by(self, sender: str) -> tuple[int, int]:
        """Return the messages and bytes of `sender`."""
        return self.by_sender.get(sender, _NOTHING)


def heaviest(weights: dict[str, int]) -> str:
    """Return the sender with the most weight; among equals, the first by name."""
    return min(weights, key=lambda sender: (-weights[sender], sender))


def choose_victims(candidates: Sequence[tuple[int, str, int]], needed: int) -> list[int]:
    """Return the positions in `candidates` (rank, sender, weight; oldest first) to remove.

    Each victim is of the lowest rank that is left, and there the oldest of the sender with the
    most weight at that point. The result is empty if all candidates together have less weight
    than `needed`: then nothing is removed.
    """
    if sum(weight for _, _, weight in candidates) < needed:
        return []
    ranks = [rank for rank, _, _ in candidates]
    by_rank = sorted(range(len(candidates)), key=ranks.__getitem__)
    victims: list[int] = []
    for _, positions in groupby(by_rank, key=ranks.__getitem__):
        if needed <= 0:
            break
        chosen = _of_one_rank(candidates, list(positions), needed)
        needed -= sum(candidates[position][2] for position in chosen)
        victims += chosen
    return victims


def choose_purges(dead: Sequence[tuple[bool, bool, str]], count: int) -> list[int]:
    """Return the positions of `count` of `dead` (known, evicted, sender; oldest first) to purge.

    Those of strangers come first, so that no number of new names displaces those of a sender that
    the recipient knows. Among them, those that were not evicted come first: a rejected or failed
    message is mostly its sender's or recipient's own doing.
    """
    return choose_victims(
        [(2 * known + evicted, sender, 1) for known, evicted, sender in dead], count
    )


def _of_one_rank(
    candidates: Sequence[tuple[int, str, int]], positions: list[int], needed: int
) -> list[int]:
    """Return the victims among `positions`, oldest first: enough for `needed`, or all."""
    held: dict[str, int] = {}
    left: dict[str, list[int]] = {}
    for position in reversed(positions):
        _, sender, weight = candidates[position]
        held[sender] = held.get(sender, 0) + weight
        left.setdefault(sender, []).append(position)
    victims: list[int] = []
    while needed > 0 and held:
        sender = heaviest(held)
        position = left[sender].pop()
        weight = candidates[position][2]
        victims.append(position)
        needed -= weight
        held[sender] -= weight
        if not left[sender]:
            del held[sender]
    return victims
