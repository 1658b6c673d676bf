"""Columns over time in rows of their own: what happened when, for things of any size."""

import msgspec

from waypost.pipeline.reports.charts.drawing import (
    AXIS_HEIGHT,
    Look,
    Times,
    boxes,
    drawing,
    hover,
    line,
    time_axis,
)
from waypost.pipeline.reports.charts.rows import plan_rows
from waypost.pipeline.reports.charts.scales import Linear
from waypost.pipeline.reports.formatting import instant, number
from waypost.pipeline.reports.html import Markup


class Strip(msgspec.Struct, frozen=True):
    """A name, values by the beginning of a step, and what is said at the end."""

    name: str
    values: dict[int, float]
    note: str


class Strips(msgspec.Struct, frozen=True):
    """Each strip has a scale of its own: the highest column is as high as the row."""

    times: Times
    strips: list[Strip]


def draw_strips(look: Look, data: Strips) -> Markup:
    """One strip below the other, over one time axis."""
    plan = plan_rows(look, 4, 30, 12, [(strip.name, strip.note) for strip in data.strips])
    bottom = plan.bottom(len(data.strips)) - plan.gap + 4
    x = data.times.scale(plan.left, plan.right)
    content = [time_axis(data.times, x, plan.y(0), bottom)]
    for place, strip in enumerate(data.strips):
        low = plan.y(place) + plan.thick
        up = Linear(0, max(strip.values.values(), default=0) or 1, 0, plan.thick)
        columns = []
        for at_ms, value in sorted(strip.values.items()):
            start, end = x.at(at_ms), x.at(at_ms + data.times.step_ms)
            height = max(1.0, up.at(value)) if value > 0 else 0
            gap = 1.0 if end - start > 3 else 0.0
            columns.append((start, low - height, max(0.8, end - start - gap), height))
            if not look.narrow:
                said = f"{instant(at_ms)}: {strip.name} {number(value)}"
                content.append(hover(start, plan.y(place), max(1.0, end - start), plan.thick, said))
        content.append(line(plan.left, low, plan.right, low, "grid"))
        content.append(boxes(columns, "refused"))
        content.append(plan.names(place, strip.name, strip.note))
    return drawing(look, bottom + AXIS_HEIGHT, *content)
