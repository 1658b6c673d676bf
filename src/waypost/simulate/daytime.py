"""When traffic happens: much in the afternoon, little at night."""

import math
from bisect import bisect_right
from itertools import accumulate

_STEP_US = 900_000_000
_PEAK_HOUR = 15
_SWING = 0.8
"""At the peak there is 1.8 times the mean, twelve hours later 0.2 times."""


class Daytime:
    """Spreads shares of a whole over `span_us` of time from `start_us`."""

    def __init__(self, start_us: int, span_us: int) -> None:
        steps = max(1, math.ceil(span_us / _STEP_US))
        self._start_us = start_us
        self._step_us = span_us / steps
        weights = [_liveliness(start_us + (at + 0.5) * self._step_us) for at in range(steps)]
        whole = sum(weights)
        self._ends = [end / whole for end in accumulate(weights)]

    def instant_us(self, share: float) -> int:
        """When `share` (0.0 to 1.0) of all traffic has passed."""
        step = min(bisect_right(self._ends, share), len(self._ends) - 1)
        before = self._ends[step - 1] if step else 0.0
        within = (share - before) / (self._ends[step] - before)
        return self._start_us + int((step + min(within, 1.0)) * self._step_us)


def _liveliness(at_us: float) -> float:
    hour = at_us / 3_600_000_000 % 24
    return 1 + _SWING * math.cos((hour - _PEAK_HOUR) / 12 * math.pi)
