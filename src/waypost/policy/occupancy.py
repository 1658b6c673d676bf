"""What lies in one mailbox, in total and by sender.

Rule 1  Always equal to a recount of the messages in the mailbox.
Rule 2  A sender with nothing in the mailbox takes no memory.
"""

from collections.abc import Sequence

_NOTHING = (0, 0)


class Occupancy:
    """Counts and bytes of one mailbox. Bytes are those of whole stored envelopes."""

    __slots__ = ("by_sender", "bytes", "depth")

    def __init__(self) -> None:
        self.depth = 0
        self.bytes = 0
        self.by_sender: dict[str, tuple[int, int]] = {}

    def add(self, sender: str, size_bytes: int) -> None:
        """A message of `sender` came in."""
        self.depth += 1
        self.bytes += size_bytes
        count, held = self.by_sender.get(sender, _NOTHING)
        self.by_sender[sender] = (count + 1, held + size_bytes)

    def remove(self, sender: str, size_bytes: int) -> None:
        """A message of `sender` left."""
        count, held = self.by_sender[sender]
        self.depth -= 1
        self.bytes -= size_bytes
        if count == 1:
            del self.by_sender[sender]
        else:
            self.by_sender[sender] = (count - 1, held - size_bytes)

    def held_by(self, sender: str) -> tuple[int, int]:
        """How many messages and bytes of `sender` lie here."""
        return self.by_sender.get(sender, _NOTHING)


def heaviest(bytes_by_sender: dict[str, int]) -> str:
    """The sender holding the most bytes; the first by name among equals."""
    return min(bytes_by_sender, key=lambda sender: (-bytes_by_sender[sender], sender))


def choose_victims(evictable: Sequence[tuple[str, int]], needed_bytes: int) -> list[int]:
    """Positions in `evictable` (sender, bytes; oldest first) to evict for `needed_bytes`.

    Each victim is the oldest message of whoever holds the most bytes at that point. Empty when
    evicting everything would not be enough: then nothing is evicted.
    """
    if sum(size for _, size in evictable) < needed_bytes:
        return []
    held: dict[str, int] = {}
    waiting: dict[str, list[int]] = {}
    for position in range(len(evictable) - 1, -1, -1):
        sender, size = evictable[position]
        held[sender] = held.get(sender, 0) + size
        waiting.setdefault(sender, []).append(position)
    victims: list[int] = []
    while needed_bytes > 0:
        sender = heaviest(held)
        position = waiting[sender].pop()
        size = evictable[position][1]
        victims.append(position)
        needed_bytes -= size
        held[sender] -= size
        if not waiting[sender]:
            del held[sender]
    return victims
