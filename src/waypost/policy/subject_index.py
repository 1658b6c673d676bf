"""A trie of subjects: finds patterns that match a subject, and subjects that match a pattern.

Rule 1  `matching(subject)` agrees with `matches_pattern` on every stored pattern.
Rule 2  `within(pattern)` agrees with `matches_pattern` on every stored literal subject.
Rule 3  Results are in the order of addition, whatever the shape of the trie.

The cost depends on the length of the subject and the number of results, not on the number of
stored patterns.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from waypost.policy.subjects import ONE, REST

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("below", "here")

    def __init__(self) -> None:
        self.below: dict[str, _Node[T]] = {}
        self.here: dict[int, T] = {}


class SubjectIndex(Generic[T]):
    """Values stored under subjects or patterns, each with a ticket for its removal."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._next_ticket = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, pattern: str, value: T) -> int:
        """Store `value` under a validated `pattern`; return the ticket for `remove`."""
        node = self._root
        for token in pattern.split("."):
            node = node.below.setdefault(token, _Node())
        ticket = self._next_ticket
        self._next_ticket += 1
        self._size += 1
        node.here[ticket] = value
        return ticket

    def remove(self, pattern: str, ticket: int) -> bool:
        """Remove the value with `ticket`, and empty branches; return whether it was there."""
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
        """Return the values whose pattern matches the literal `subject`."""
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
        """Return the values of literal subjects that match `pattern`."""
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

    def within_bounds(
        self, pattern: str, accept: Callable[[T], bool], values_max: int, visits_max: int
    ) -> list[T] | None:
        """Return as `within` does what `accept` returns true for, or None if a bound is exceeded.

        `visits_max` bounds the nodes on the way to the values.
        """
        found: dict[int, T] = {}
        for visits, node in enumerate(_visits(self._root, pattern.split(".")), 1):
            if visits > visits_max:
                return None
            if node is not None:
                found |= {ticket: one for ticket, one in node.here.items() if accept(one)}
                if len(found) > values_max:
                    return None
        return [found[ticket] for ticket in sorted(found)]


def _visits(node: _Node[T], tokens: Sequence[str]) -> Iterator[_Node[T] | None]:
    """Yield lazily every node below `node` on the way of `tokens`: None if it is only passed."""
    if not tokens:
        yield node
    elif tokens[0] == REST:
        levels = [iter(node.below.values())]
        while levels:
            deep = next(levels[-1], None)
            if deep is None:
                levels.pop()
            else:
                yield deep
                levels.append(iter(deep.below.values()))
    elif tokens[0] == ONE:
        for below in node.below.values():
            yield None
            yield from _visits(below, tokens[1:])
    elif tokens[0] in node.below:
        yield from _visits(node.below[tokens[0]], tokens[1:])


def _descendants(node: _Node[T]) -> Iterator[_Node[T]]:
    pending = list(node.below.values())
    while pending:
        deep = pending.pop()
        yield deep
        pending.extend(deep.below.values())
