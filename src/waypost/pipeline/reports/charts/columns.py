"""Columns over time, one kind standing on the other."""

from collections.abc import Callable

import msgspec

from waypost.pipeline.reports.charts.drawing import (
    AXIS_HEIGHT,
    LETTER,
    Look,
    Times,
    boxes,
    drawing,
    hover,
    label,
    line,
    time_axis,
)
from waypost.pipeline.reports.charts.legend import legend
from waypost.pipeline.reports.charts.scales import Linear, Logarithmic, ticks
from waypost.pipeline.reports.formatting import compact, instant, number
from waypost.pipeline.reports.html import Markup, joined


class Kind(msgspec.Struct, frozen=True):
    """One kind of column: its name, its class, and its value by the beginning of a step."""

    name: str
    kind: str
    values: dict[int, float]


class Columns(msgspec.Struct, frozen=True):
    """The first kind stands on the axis, each further one on that before it."""

    times: Times
    kinds: list[Kind]


def draw_columns(look: Look, data: Columns) -> Markup:
    """Stacked columns with a legend above and the time below."""
    steps = sorted({at_ms for kind in data.kinds for at_ms in kind.values})
    sums = {at: sum(kind.values.get(at, 0) for kind in data.kinds) for at in steps}
    marks = ticks(max(sums.values(), default=0), 3 if look.narrow else 4, whole=True)
    above, top = legend([(one.kind, one.name) for one in data.kinds], look.width)
    if len(data.kinds) == 1:
        above, top = Markup(""), 12
    bottom = top + (150 if look.narrow else 200)
    left = max(len(compact(mark)) for mark in marks) * LETTER + 10
    x = data.times.scale(left, look.width - 1)
    y = Linear(0, marks[-1], bottom, top + 6)
    content = [above, value_axis(marks, y, left, look.width, compact)]
    content.append(time_axis(data.times, x, top + 6, bottom))
    content += _stacks(data, steps, x, y)
    if not look.narrow:
        content += [_told(data, at_ms, x, (top, bottom)) for at_ms in steps]
    return drawing(look, bottom + AXIS_HEIGHT, *content)


def value_axis(
    marks: list[float],
    y: Linear | Logarithmic,
    left: float,
    right: float,
    words: Callable[[float], str],
) -> Markup:
    """A line and a label for each mark."""
    return joined(
        *(
            joined(
                line(left, y.at(mark), right, y.at(mark)),
                label(left - 6, y.at(mark) + 4, words(mark), "end"),
            )
            for mark in marks
        )
    )


def _stacks(data: Columns, steps: list[int], x: Linear, y: Linear) -> list[Markup]:
    reached = dict.fromkeys(steps, 0.0)
    step_ms = data.times.step_ms
    drawn = []
    for kind in data.kinds:
        places = []
        for at_ms, value in sorted(kind.values.items()):
            if value <= 0:
                continue
            low, high = y.at(reached[at_ms]), y.at(reached[at_ms] + value)
            start, end = x.at(at_ms), x.at(at_ms + step_ms)
            gap = 1.0 if end - start > 3 else 0.0
            # What is there is seen, however little it is beside the rest.
            places.append(
                (start, min(high, low - 1), max(0.8, end - start - gap), max(1.0, low - high))
            )
            reached[at_ms] += value
        drawn.append(boxes(places, kind.kind))
    return drawn


def _told(data: Columns, at_ms: int, x: Linear, between: tuple[float, float]) -> Markup:
    start, end = x.at(at_ms), x.at(at_ms + data.times.step_ms)
    said = ", ".join(f"{one.name} {number(one.values.get(at_ms, 0))}" for one in data.kinds)
    return hover(
        start,
        between[0],
        max(1.0, end - start),
        between[1] - between[0],
        f"{instant(at_ms)}: {said}",
    )
