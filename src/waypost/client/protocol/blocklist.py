"""Senders an agent does not want to hear from.

The relay never learns of it: their messages are confirmed like any other, and only counted here.
"""

from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import is_literal, matches_pattern, validate_pattern

PATTERNS_MAX = 10_000


class BlockList:
    """Subjects and patterns of senders. `count` is how much was kept away so far."""

    def __init__(self) -> None:
        self._literal: set[str] = set()
        self._patterns: set[str] = set()
        self.count = 0

    def add(self, pattern: str) -> None:
        """Hear no more from senders under `pattern`. Raises `InvalidSubject` if it is none."""
        validate_pattern(pattern)
        if len(self._literal) + len(self._patterns) >= PATTERNS_MAX:
            raise InvalidInput(f"a block list holds at most {PATTERNS_MAX:,} patterns")
        (self._literal if is_literal(pattern) else self._patterns).add(pattern)

    def remove(self, pattern: str) -> None:
        """Hear from them again; a pattern that was never added does no harm."""
        self._literal.discard(pattern)
        self._patterns.discard(pattern)

    def keeps_away(self, sender: str) -> bool:
        """Whether `sender` is blocked; counts if so."""
        blocked = sender in self._literal or any(
            matches_pattern(sender, pattern) for pattern in self._patterns
        )
        self.count += blocked
        return blocked

    def listing(self) -> list[str]:
        """Every pattern, sorted."""
        return sorted(self._literal | self._patterns)
