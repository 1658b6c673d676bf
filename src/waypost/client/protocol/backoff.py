"""How long to wait before connecting again.

Rule 1  Each attempt that fails doubles the wait, from 0.1 s up to 30 s.
Rule 2  Up to half of a wait is left to chance, so that agents which lost the same relay do not
        all come back in the same instant.
Rule 3  A connection that held for ten seconds was a good one: the next wait is short again. One
        that was accepted and dropped at once was not.

Chance is given in; this module neither waits nor knows the time.
"""

from collections.abc import Callable

FIRST_MS = 100
LONGEST_MS = 30_000
GOOD_CONNECTION_MS = 10_000
_DOUBLINGS_MAX = 16
"""More would change nothing: the longest wait is reached before."""


class Backoff:
    """Counts attempts. `chance` gives numbers from 0.0 up to, not including, 1.0."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._failures = 0

    def after(self, connected_ms: int) -> int:
        """How many ms to wait after a connection that was of use for `connected_ms` (0: never)."""
        if connected_ms >= GOOD_CONNECTION_MS:
            self._failures = 0
        ceiling = min(LONGEST_MS, FIRST_MS << min(self._failures, _DOUBLINGS_MAX))
        self._failures += 1
        return max(FIRST_MS, int(ceiling * (0.5 + 0.5 * self._chance())))
