"""Horizontal bars, one for each item."""

import msgspec

from waypost.pipeline.reports.charts.legend import legend
from waypost.pipeline.reports.charts.rows import plan_rows
from waypost.pipeline.reports.charts.scales import Linear
from waypost.pipeline.reports.charts.svg import Canvas, boxes, svg
from waypost.pipeline.reports.html import Markup


class Bar(msgspec.Struct, frozen=True):
    """A bar: its name, its parts (class, value) in order, and the note at its end."""

    name: str
    parts: list[tuple[str, float]]
    note: str


class Bars(msgspec.Struct, frozen=True):
    """`whole`: the value of a full bar; 0 is that of the longest bar. `kinds`: (class, name)."""

    bars: list[Bar]
    whole: float = 0.0
    kinds: list[tuple[str, str]] = []


def draw_bars(canvas: Canvas, data: Bars) -> Markup:
    """Draw the bars below each other."""
    above, top = legend(data.kinds, canvas.width) if data.kinds else (Markup(""), 2)
    plan = plan_rows(canvas, top, 14, 8, [(bar.name, bar.note) for bar in data.bars])
    longest = max((sum(value for _, value in bar.parts) for bar in data.bars), default=0)
    x = Linear(0, data.whole or longest or 1, 0, plan.right - plan.left)
    content = [above]
    for index, bar in enumerate(data.bars):
        content.append(boxes([(plan.left, plan.y(index), plan.right - plan.left, 14)], "track"))
        reached = plan.left
        for kind, value in bar.parts:
            width = x.at(value)
            if value > 0:
                content.append(boxes([(reached, plan.y(index), max(1.5, width), 14)], kind))
            reached += width
        content.append(plan.names(index, bar.name, bar.note))
    return svg(canvas, plan.bottom(len(data.bars)), *content)
