"""The delays between attempts to connect; `session` states the rule."""

from collections.abc import Callable

BACKOFF_FIRST_MS = 100
BACKOFF_MAX_MS = 30_000
NODES_BACKOFF_MAX_MS = 5_000
"""With several nodes, another one takes over within seconds: later attempts would be late."""
BACKOFF_RESET_MS = 10_000
_DOUBLINGS_MAX = 16
"""More would change nothing: the longest delay is reached before."""


class Backoff:
    """Delays between attempts, up to `max_ms`. `random` returns numbers in [0.0, 1.0)."""

    def __init__(self, random: Callable[[], float], max_ms: int = BACKOFF_MAX_MS) -> None:
        self._random = random
        self._max_ms = max_ms
        self._failures = 0

    def delay_ms(self, connected_ms: int) -> int:
        """Return the delay after a connection that lasted `connected_ms` (0: it failed)."""
        if connected_ms >= BACKOFF_RESET_MS:
            self._failures = 0
        ceiling = min(self._max_ms, BACKOFF_FIRST_MS << min(self._failures, _DOUBLINGS_MAX))
        self._failures += 1
        return max(BACKOFF_FIRST_MS, int(ceiling * (0.5 + 0.5 * self._random())))
