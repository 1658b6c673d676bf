"""A trie over subjects: who is interested in this subject, who is registered under this pattern.

Rule 1  `matching(subject)` agrees with `matches_pattern` on every stored pattern.
Rule 2  `within(pattern)` agrees with `matches_pattern` on every stored literal subject.
Rule 3  Results come in the order in which they were added, whatever the shape of the trie.

Cost depends on the length of the subject and on the number of results, never on how many
patterns are stored.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from waypost.policy.subjects import ONE, REST

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("below", "here")

    def __init__(self) -> None:
        self.below: dict[str, _Node[T]] = {}
        self.here: dict[int, T] = {}


class SubjectIndex(Generic[T]):
    """Values stored under subjects or patterns. Each value has a ticket with which it leaves."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._next_ticket = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, pattern: str, value: T) -> int:
        """Store `value` under `pattern`, already validated; returns the ticket for `remove`."""
        node = self._root
        for token in pattern.split("."):
            node = node.below.setdefault(token, _Node())
        ticket = self._next_ticket
        self._next_ticket += 1
        self._size += 1
        node.here[ticket] = value
        return ticket

    def remove(self, pattern: str, ticket: int) -> bool:
        """Take out what was added with `ticket`; empty branches go with it."""
        path = [self._root]
        tokens = pattern.split(".")
        for token in tokens:
            node = path[-1].below.get(token)
            if node is None:
                return False
            path.append(node)
        if ticket not in path[-1].here:
            return False
        del path[-1].here[ticket]
        self._size -= 1
        for parent, token, node in zip(path[-2::-1], reversed(tokens), path[:0:-1], strict=True):
            if node.here or node.below:
                break
            del parent.below[token]
        return True

    def matching(self, subject: str) -> list[T]:
        """Values whose stored pattern covers the literal `subject`."""
        found: dict[int, T] = {}
        nodes = [self._root]
        for token in subject.split("."):
            following = []
            for node in nodes:
                below = node.below
                if REST in below:
                    found.update(below[REST].here)
                if ONE in below:
                    following.append(below[ONE])
                if token in below:
                    following.append(below[token])
            nodes = following
        for node in nodes:
            found.update(node.here)
        return [found[ticket] for ticket in sorted(found)]

    def within(self, pattern: str) -> list[T]:
        """Values stored under literal subjects that `pattern` covers."""
        nodes = [self._root]
        for token in pattern.split("."):
            if token == REST:
                nodes = [deep for node in nodes for deep in _descendants(node)]
                break
            if token == ONE:
                nodes = [below for node in nodes for below in node.below.values()]
            else:
                nodes = [node.below[token] for node in nodes if token in node.below]
        found = {ticket: value for node in nodes for ticket, value in node.here.items()}
        return [found[ticket] for ticket in sorted(found)]


def _descendants(node: _Node[T]) -> Iterator[_Node[T]]:
    waiting = list(node.below.values())
    while waiting:
        deep = waiting.pop()
        yield deep
        waiting.extend(deep.below.values())
