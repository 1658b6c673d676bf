"""Lengths of time over time: one line for each kind, broken where there is none."""

import msgspec

from waypost.pipeline.reports.charts.columns import value_axis
from waypost.pipeline.reports.charts.drawing import (
    AXIS_HEIGHT,
    LETTER,
    Look,
    Times,
    drawing,
    hover,
    time_axis,
)
from waypost.pipeline.reports.charts.legend import legend
from waypost.pipeline.reports.charts.scales import (
    Linear,
    Logarithmic,
    duration_decades,
    duration_ticks,
)
from waypost.pipeline.reports.formatting import duration, instant
from waypost.pipeline.reports.html import Markup, coordinate, joined, tag

LOGARITHMIC_FROM = 50
"""From this ratio of largest to smallest value on, equal steps would flatten all but one line."""


class Line(msgspec.Struct, frozen=True):
    """One line: its name, its class, and its value by the beginning of a step."""

    name: str
    kind: str
    values: dict[int, float]


class Lines(msgspec.Struct, frozen=True):
    """Lines on one axis, in ms."""

    times: Times
    lines: list[Line]


def draw_lines(look: Look, data: Lines) -> Markup:
    """Lines with a legend above and the time below."""
    above, top = legend([(one.kind, one.name) for one in data.lines], look.width)
    bottom = top + (170 if look.narrow else 220)
    values = [value for one in data.lines for value in one.values.values()]
    y, marks = _value_scale(values, bottom, top + 6)
    left = max(len(duration(mark)) for mark in marks) * LETTER + 10
    x = data.times.scale(left, look.width - 4)
    content = [above, value_axis(marks, y, left, look.width, duration)]
    content.append(time_axis(data.times, x, top + 6, bottom))
    content += [_line(one, data.times.step_ms, x, y) for one in data.lines]
    if not look.narrow:
        steps = sorted({at_ms for one in data.lines for at_ms in one.values})
        content += [_told(data, at_ms, x, (top, bottom)) for at_ms in steps]
    return drawing(look, bottom + AXIS_HEIGHT, *content)


def _value_scale(
    values: list[float], bottom: float, top: float
) -> tuple[Linear | Logarithmic, list[float]]:
    above_zero = [value for value in values if value > 0]
    if above_zero and max(above_zero) >= LOGARITHMIC_FROM * min(above_zero):
        marks = duration_decades(min(above_zero), max(above_zero))
        return Logarithmic(marks[0], marks[-1], bottom, top), marks
    marks = duration_ticks(max(values, default=0), 4)
    return Linear(0, marks[-1], bottom, top), marks


def _line(line: Line, step_ms: int, x: Linear, y: Linear | Logarithmic) -> Markup:
    path = []
    alone = []
    before: int | None = None
    steps = sorted(line.values)
    for place, at_ms in enumerate(steps):
        follows = before is not None and at_ms - before == step_ms
        continues = place + 1 < len(steps) and steps[place + 1] - at_ms == step_ms
        across, up = x.at(at_ms + step_ms / 2), y.at(line.values[at_ms])
        if not follows and not continues:
            alone.append(tag("circle", cx=across, cy=up, r=2.5, class_=f"dot {line.kind}"))
        else:
            path.append(f"{'L' if follows else 'M'}{coordinate(across)} {coordinate(up)}")
        before = at_ms
    drawn = tag("path", d="".join(path), class_=line.kind) if path else Markup("")
    return joined(drawn, *alone)


def _told(data: Lines, at_ms: int, x: Linear, between: tuple[float, float]) -> Markup:
    start, end = x.at(at_ms), x.at(at_ms + data.times.step_ms)
    said = ", ".join(
        f"{one.name} {duration(one.values[at_ms])}" for one in data.lines if at_ms in one.values
    )
    words = f"{instant(at_ms)}: {said}"
    return hover(start, between[0], max(1.0, end - start), between[1] - between[0], words)
