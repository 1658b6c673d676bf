"""Durations over time: one line for each series, interrupted where values are missing."""

import msgspec

from waypost.pipeline.reports.charts.columns import value_axis
from waypost.pipeline.reports.charts.legend import legend
from waypost.pipeline.reports.charts.scales import (
    Linear,
    Logarithmic,
    duration_decades,
    duration_ticks,
)
from waypost.pipeline.reports.charts.svg import (
    AXIS_HEIGHT,
    CHAR_WIDTH,
    Canvas,
    Times,
    svg,
    time_axis,
    tooltip,
)
from waypost.pipeline.reports.formatting import duration, instant
from waypost.pipeline.reports.html import Markup, coordinate, joined, tag

LOGARITHMIC_FROM = 50
"""Ratio of largest to smallest value from which the scale is logarithmic."""


class Line(msgspec.Struct, frozen=True):
    """One line: its name, its class, and its value by start of step."""

    name: str
    kind: str
    values: dict[int, float]


class Lines(msgspec.Struct, frozen=True):
    """Lines on one axis, in ms."""

    times: Times
    lines: list[Line]


def draw_lines(canvas: Canvas, data: Lines) -> Markup:
    """Draw lines with a legend above and a time axis below."""
    above, top = legend([(one.kind, one.name) for one in data.lines], canvas.width)
    bottom = top + (170 if canvas.narrow else 220)
    values = [value for one in data.lines for value in one.values.values()]
    y, marks = _value_scale(values, bottom, top + 6)
    left = max(len(duration(mark)) for mark in marks) * CHAR_WIDTH + 10
    x = data.times.scale(left, canvas.width - 4)
    content = [above, value_axis(marks, y, left, canvas.width, duration)]
    content.append(time_axis(data.times, x, top + 6, bottom))
    content += [_line(one, data.times.step_ms, x, y) for one in data.lines]
    if not canvas.narrow:
        steps = sorted({at_ms for one in data.lines for at_ms in one.values})
        content += [_tooltip(data, at_ms, x, (top, bottom)) for at_ms in steps]
    return svg(canvas, bottom + AXIS_HEIGHT, *content)


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
    dots = []
    before: int | None = None
    steps = sorted(line.values)
    for index, at_ms in enumerate(steps):
        follows = before is not None and at_ms - before == step_ms
        continues = index + 1 < len(steps) and steps[index + 1] - at_ms == step_ms
        across, up = x.at(at_ms + step_ms / 2), y.at(line.values[at_ms])
        if not follows and not continues:
            dots.append(tag("circle", cx=across, cy=up, r=2.5, class_=f"dot {line.kind}"))
        else:
            path.append(f"{'L' if follows else 'M'}{coordinate(across)} {coordinate(up)}")
        before = at_ms
    drawn = tag("path", d="".join(path), class_=line.kind) if path else Markup("")
    return joined(drawn, *dots)


def _tooltip(data: Lines, at_ms: int, x: Linear, between: tuple[float, float]) -> Markup:
    start, end = x.at(at_ms), x.at(at_ms + data.times.step_ms)
    values = ", ".join(
        f"{one.name} {duration(one.values[at_ms])}" for one in data.lines if at_ms in one.values
    )
    text = f"{instant(at_ms)}: {values}"
    return tooltip(start, between[0], max(1.0, end - start), between[1] - between[0], text)
