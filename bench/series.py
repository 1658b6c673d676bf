"""The same figure of several runs, in the order of the runs: median, spread, and ratios.

A ratio is taken run by run: contestants take turns, so their runs of one number were neighbours
in time, and what else the machine did affected both.
"""

import statistics
from collections.abc import Sequence

Runs = Sequence[float]


def median(runs: Runs) -> float:
    """Return the median."""
    return statistics.median(runs)


def ratio(runs: Runs, others: Runs) -> list[float]:
    """Return the figures relative to `others`, run by run."""
    return [own / other for own, other in zip(runs, others, strict=True)]


def percentile(values: Runs, percent: int) -> float:
    """Return a percentile; of a single value, that value."""
    return values[0] if len(values) == 1 else statistics.quantiles(values, n=100)[percent - 1]


def rate_text(runs: Runs) -> str:
    """Return median and half the spread: `21,170 ±3%`."""
    return f"{number_text(median(runs))} ±{spread(runs):.0%}"


def ratio_text(runs: Runs) -> str:
    """Return the median with the smallest and the largest: `1.10 (1.02–1.15)`."""
    middle = f"{median(runs):.2f}"
    return middle if len(runs) == 1 else f"{middle} ({min(runs):.2f}–{max(runs):.2f})"


def spread(runs: Runs) -> float:
    """Return half the distance between smallest and largest, relative to the median."""
    middle = median(runs)
    return (max(runs) - min(runs)) / 2 / middle if middle else 0.0


def number_text(value: float) -> str:
    """Return three digits or more: `0.0123`, `1.23`, `12.3`, `1,234`."""
    if not value or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
