"""Columns over time: stacked, or in separate rows with a scale each."""

from collections.abc import Callable

import msgspec

from waypost.pipeline.reports.charts.legend import legend
from waypost.pipeline.reports.charts.rows import plan_rows
from waypost.pipeline.reports.charts.scales import Linear, Logarithmic, ticks
from waypost.pipeline.reports.charts.svg import (
    AXIS_HEIGHT,
    CHAR_WIDTH,
    Canvas,
    Times,
    boxes,
    label,
    line,
    svg,
    time_axis,
    tooltip,
)
from waypost.pipeline.reports.formatting import compact, instant, number
from waypost.pipeline.reports.html import Markup, joined


class Series(msgspec.Struct, frozen=True):
    """One series of a stack: its name, its class, and its value by start of step."""

    name: str
    kind: str
    values: dict[int, float]


class Columns(msgspec.Struct, frozen=True):
    """Stacked series: the first stands on the axis, each other one on the one before."""

    times: Times
    series: list[Series]


def draw_columns(canvas: Canvas, data: Columns) -> Markup:
    """Draw stacked columns with a legend above and a time axis below."""
    steps = sorted({at_ms for kind in data.series for at_ms in kind.values})
    sums = {at: sum(kind.values.get(at, 0) for kind in data.series) for at in steps}
    marks = ticks(max(sums.values(), default=0), 3 if canvas.narrow else 4, whole=True)
    above, top = legend([(one.kind, one.name) for one in data.series], canvas.width)
    if len(data.series) == 1:
        above, top = Markup(""), 12
    bottom = top + (150 if canvas.narrow else 200)
    left = max(len(compact(mark)) for mark in marks) * CHAR_WIDTH + 10
    x = data.times.scale(left, canvas.width - 1)
    y = Linear(0, marks[-1], bottom, top + 6)
    content = [above, value_axis(marks, y, left, canvas.width, compact)]
    content.append(time_axis(data.times, x, top + 6, bottom))
    content += _stacks(data, steps, x, y)
    if not canvas.narrow:
        content += [_tooltip(data, at_ms, x, (top, bottom)) for at_ms in steps]
    return svg(canvas, bottom + AXIS_HEIGHT, *content)


def value_axis(
    marks: list[float],
    y: Linear | Logarithmic,
    left: float,
    right: float,
    format_value: Callable[[float], str],
) -> Markup:
    """Draw a grid line and a label for each mark."""
    return joined(
        *(
            joined(
                line(left, y.at(mark), right, y.at(mark)),
                label(left - 6, y.at(mark) + 4, format_value(mark), "end"),
            )
            for mark in marks
        )
    )


def _stacks(data: Columns, steps: list[int], x: Linear, y: Linear) -> list[Markup]:
    reached = dict.fromkeys(steps, 0.0)
    step_ms = data.times.step_ms
    drawn = []
    for kind in data.series:
        columns = []
        for at_ms, value in sorted(kind.values.items()):
            if value <= 0:
                continue
            low, high = y.at(reached[at_ms]), y.at(reached[at_ms] + value)
            start, end = x.at(at_ms), x.at(at_ms + step_ms)
            gap = 1.0 if end - start > 3 else 0.0
            # A value above 0 is visible, however small beside the others.
            columns.append(
                (start, min(high, low - 1), max(0.8, end - start - gap), max(1.0, low - high))
            )
            reached[at_ms] += value
        drawn.append(boxes(columns, kind.kind))
    return drawn


def _tooltip(data: Columns, at_ms: int, x: Linear, between: tuple[float, float]) -> Markup:
    start, end = x.at(at_ms), x.at(at_ms + data.times.step_ms)
    values = ", ".join(f"{one.name} {number(one.values.get(at_ms, 0))}" for one in data.series)
    return tooltip(
        start,
        between[0],
        max(1.0, end - start),
        between[1] - between[0],
        f"{instant(at_ms)}: {values}",
    )


class Strip(msgspec.Struct, frozen=True):
    """A row of columns: its name, its values by start of step, and the note at its end."""

    name: str
    values: dict[int, float]
    note: str


class Strips(msgspec.Struct, frozen=True):
    """Rows of columns, each with its own scale: the highest column fills the row."""

    times: Times
    strips: list[Strip]


def draw_strips(canvas: Canvas, data: Strips) -> Markup:
    """Draw the strips below each other, over one time axis."""
    plan = plan_rows(canvas, 4, 30, 12, [(strip.name, strip.note) for strip in data.strips])
    bottom = plan.bottom(len(data.strips)) - plan.gap + 4
    x = data.times.scale(plan.left, plan.right)
    content = [time_axis(data.times, x, plan.y(0), bottom)]
    for index, strip in enumerate(data.strips):
        low = plan.y(index) + plan.thick
        up = Linear(0, max(strip.values.values(), default=0) or 1, 0, plan.thick)
        columns = []
        for at_ms, value in sorted(strip.values.items()):
            start, end = x.at(at_ms), x.at(at_ms + data.times.step_ms)
            height = max(1.0, up.at(value)) if value > 0 else 0
            gap = 1.0 if end - start > 3 else 0.0
            columns.append((start, low - height, max(0.8, end - start - gap), height))
            if not canvas.narrow:
                text = f"{instant(at_ms)}: {strip.name} {number(value)}"
                content.append(
                    tooltip(start, plan.y(index), max(1.0, end - start), plan.thick, text)
                )
        content.append(line(plan.left, low, plan.right, low, "grid"))
        content.append(boxes(columns, "rejected"))
        content.append(plan.names(index, strip.name, strip.note))
    return svg(canvas, bottom + AXIS_HEIGHT, *content)
