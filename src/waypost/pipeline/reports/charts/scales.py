"""Scales from values to pixels, and the values to label. Pure.

Rule 1  Ticks are round numbers: 1, 2, 2.5 or 5 times a power of ten, or parts of a day.
Rule 2  A scale is never empty: one value, or many equal ones, still have a position.
"""

import math

import msgspec

from waypost.pipeline.reports.formatting import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, when

_TIME_STEPS_MS = [
    *(seconds * SECOND_MS for seconds in (1, 5, 15, 30)),
    *(minutes * MINUTE_MS for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR_MS for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_MS for days in (1, 2, 7, 14, 28, 91, 182, 364)),
]

_UNITS_MS = (DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS)
_DURATIONS_MS: list[float] = [
    0.001,
    0.01,
    0.1,
    1,
    10,
    100,
    SECOND_MS,
    10 * SECOND_MS,
    MINUTE_MS,
    10 * MINUTE_MS,
    HOUR_MS,
    10 * HOUR_MS,
    4 * DAY_MS,
    30 * DAY_MS,
]


class Linear(msgspec.Struct, frozen=True):
    """A linear scale."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the pixel of a value; values outside are at the nearer end."""
        span = self.high - self.low
        part = (value - self.low) / span if span > 0 else 0.0
        return self.start + min(1.0, max(0.0, part)) * (self.end - self.start)


class Logarithmic(msgspec.Struct, frozen=True):
    """A logarithmic scale. `low` is above 0."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the pixel of a value; values outside, such as 0, are at the nearer end."""
        inside = min(self.high, max(self.low, value))
        part = math.log(inside / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)


class TimeTick(msgspec.Struct, frozen=True):
    """A label below a time axis; `major` ones are at the start of a day."""

    at_ms: int
    label: str
    major: bool


def ticks(top: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Return ticks from 0 to at least `top`, in at most `most` equal steps."""
    if not 1e-12 < top < math.inf:  # no values, or none to divide by
        top = 1.0
    rough = top / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one for one in (1, 2, 2.5, 5, 10) if one * power >= rough * (1 - 1e-9)) * power
    if whole:
        step = max(1.0, math.ceil(step))
    return [float(f"{step * index:.10g}") for index in range(math.ceil(top / step - 1e-9) + 1)]


def duration_ticks(top_ms: float, most: int = 5) -> list[float]:
    """Return ticks as `ticks`, in steps of milliseconds, seconds, minutes, hours or days."""
    unit = next((one for one in _UNITS_MS if top_ms >= one), 1)
    return [mark * unit for mark in ticks(top_ms / unit, most)]


def duration_decades(low_ms: float, high_ms: float) -> list[float]:
    """Return durations that grow about tenfold, from at most `low_ms` to at least `high_ms`."""
    below = [one for one in _DURATIONS_MS if one <= low_ms][-1:] or _DURATIONS_MS[:1]
    above = [one for one in _DURATIONS_MS if one >= high_ms and one > below[0]][:1]
    last = above[0] if above else max(high_ms, 10 * _DURATIONS_MS[-1])
    between = [one for one in _DURATIONS_MS if below[0] < one < last]
    return [*below, *between, last]


def time_ticks(first_ms: int, last_ms: int, most: int) -> list[TimeTick]:
    """Return at most `most` labels between two times, on round hours and days."""
    span_ms = max(1, last_ms - first_ms)
    step_ms = next((one for one in _TIME_STEPS_MS if span_ms <= one * most), 0)
    if not step_ms:
        step_ms = _TIME_STEPS_MS[-1] * -(-span_ms // (_TIME_STEPS_MS[-1] * most))
    # Days are counted from the first midnight, hours and minutes from midnight.
    origin_ms = first_ms - first_ms % DAY_MS
    begin_ms = origin_ms + -(-(first_ms - origin_ms) // step_ms) * step_ms
    instants = list(range(begin_ms, last_ms + 1, step_ms))[:most]
    return [_time_tick(at_ms, step_ms, first=not index) for index, at_ms in enumerate(instants)]


def _time_tick(at_ms: int, step_ms: int, *, first: bool) -> TimeTick:
    at = when(at_ms)
    midnight = at_ms % DAY_MS == 0
    if step_ms >= 28 * DAY_MS:
        return TimeTick(at_ms, f"{at.day} {at:%b %Y}" if first else f"{at.day} {at:%b}", False)
    if midnight:
        return TimeTick(at_ms, f"{at.day} {at:%b}", step_ms < DAY_MS)
    clock = f"{at:%H:%M:%S}" if step_ms < MINUTE_MS else f"{at:%H:%M}"
    return TimeTick(at_ms, clock, False)
