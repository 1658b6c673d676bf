"""Bars to the right: who has how much."""

import msgspec

from waypost.pipeline.reports.charts.drawing import Look, boxes, drawing
from waypost.pipeline.reports.charts.legend import legend
from waypost.pipeline.reports.charts.rows import plan_rows
from waypost.pipeline.reports.charts.scales import Linear
from waypost.pipeline.reports.html import Markup


class Bar(msgspec.Struct, frozen=True):
    """A name, parts one after the other (class, value), and what is said at the end."""

    name: str
    parts: list[tuple[str, float]]
    note: str


class Bars(msgspec.Struct, frozen=True):
    """`whole`: the value of a full bar; 0 is that of the longest. `kinds`: (class, name)."""

    bars: list[Bar]
    whole: float = 0.0
    kinds: list[tuple[str, str]] = []


def draw_bars(look: Look, data: Bars) -> Markup:
    """One bar below the other."""
    above, top = legend(data.kinds, look.width) if data.kinds else (Markup(""), 2)
    plan = plan_rows(look, top, 14, 8, [(bar.name, bar.note) for bar in data.bars])
    longest = max((sum(value for _, value in bar.parts) for bar in data.bars), default=0)
    x = Linear(0, data.whole or longest or 1, 0, plan.right - plan.left)
    content = [above]
    for place, bar in enumerate(data.bars):
        content.append(boxes([(plan.left, plan.y(place), plan.right - plan.left, 14)], "track"))
        reached = plan.left
        for kind, value in bar.parts:
            width = x.at(value)
            if value > 0:
                content.append(boxes([(reached, plan.y(place), max(1.5, width), 14)], kind))
            reached += width
        content.append(plan.names(place, bar.name, bar.note))
    return drawing(look, plan.bottom(len(data.bars)), *content)
