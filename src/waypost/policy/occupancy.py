"""The occupancy of one mailbox: messages and bytes, in total and by sender.

Rule 1  It always equals a recount of the messages in the mailbox.
Rule 2  A sender without messages in the mailbox takes no memory.
"""

from collections.abc import Sequence

_NOTHING = (0, 0)


class Occupancy:
    """Message and byte counts of one mailbox; bytes are those of stored envelopes."""

    __slots__ = ("by_sender", "bytes", "depth")

    def __init__(self) -> None:
        self.depth = 0
        self.bytes = 0
        self.by_sender: dict[str, tuple[int, int]] = {}

    def add(self, sender: str, size_bytes: int) -> None:
        """Count a message of `sender`."""
        self.depth += 1
        self.bytes += size_bytes
        count, held = self.by_sender.get(sender, _NOTHING)
        self.by_sender[sender] = (count + 1, held + size_bytes)

    def remove(self, sender: str, size_bytes: int) -> None:
        """Stop counting a message of `sender`."""
        count, held = self.by_sender[sender]
        self.depth -= 1
        self.bytes -= size_bytes
        if count == 1:
            del self.by_sender[sender]
        else:
            self.by_sender[sender] = (count - 1, held - size_bytes)

    def held_by(self, sender: str) -> tuple[int, int]:
        """Return the messages and bytes of `sender`."""
        return self.by_sender.get(sender, _NOTHING)


def heaviest(bytes_by_sender: dict[str, int]) -> str:
    """Return the sender with the most bytes; among equals, the first by name."""
    return min(bytes_by_sender, key=lambda sender: (-bytes_by_sender[sender], sender))


def choose_victims(evictable: Sequence[tuple[str, int]], needed_bytes: int) -> list[int]:
    """Return the positions in `evictable` (sender, bytes; oldest first) to evict.

    Each victim is the oldest message of the sender with the most bytes at that point. The result
    is empty if evicting everything would not free `needed_bytes`: then nothing is evicted.
    """
    if sum(size for _, size in evictable) < needed_bytes:
        return []
    held: dict[str, int] = {}
    positions: dict[str, list[int]] = {}
    for position in range(len(evictable) - 1, -1, -1):
        sender, size = evictable[position]
        held[sender] = held.get(sender, 0) + size
        positions.setdefault(sender, []).append(position)
    victims: list[int] = []
    while needed_bytes > 0:
        sender = heaviest(held)
        position = positions[sender].pop()
        size = evictable[position][1]
        victims.append(position)
        needed_bytes -= size
        held[sender] -= size
        if not positions[sender]:
            del held[sender]
    return victims
