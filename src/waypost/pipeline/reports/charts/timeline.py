"""Timeline: rows with the time spans of their states."""

import msgspec

from waypost.pipeline.reports.charts.legend import legend
from waypost.pipeline.reports.charts.rows import plan_rows
from waypost.pipeline.reports.charts.svg import (
    AXIS_HEIGHT,
    Canvas,
    Times,
    boxes,
    svg,
    time_axis,
    tooltip,
)
from waypost.pipeline.reports.formatting import duration, instant
from waypost.pipeline.reports.html import Markup


class Span(msgspec.Struct, frozen=True):
    """A time span of one kind (its class), and the name of the kind."""

    from_ms: int
    to_ms: int
    kind: str
    name: str


class TimelineRow(msgspec.Struct, frozen=True):
    """A row: its name, its spans, and the note at its end."""

    name: str
    spans: list[Span]
    note: str


class Timeline(msgspec.Struct, frozen=True):
    """Rows over one time axis. `kinds`: (class, name) for the legend."""

    times: Times
    rows: list[TimelineRow]
    kinds: list[tuple[str, str]]


def draw_timeline(canvas: Canvas, data: Timeline) -> Markup:
    """Draw the rows over one time axis; a span is visible however short."""
    above, top = legend(data.kinds, canvas.width)
    plan = plan_rows(canvas, top, 16, 6, [(row.name, row.note) for row in data.rows])
    bottom = plan.bottom(len(data.rows))
    x = data.times.scale(plan.left, plan.right)
    order = {kind: index for index, (kind, _) in enumerate(data.kinds)}
    content = [above]
    for index, row in enumerate(data.rows):
        y = plan.y(index)
        content.append(boxes([(plan.left, y, plan.right - plan.left, plan.thick)], "track"))
        # Where short spans overlap, the first of the kinds stays visible.
        for span in sorted(row.spans, key=lambda one: -order.get(one.kind, 0)):
            start = min(x.at(span.from_ms), plan.right - 2)
            width = max(2.0, x.at(span.to_ms) - start)
            content.append(boxes([(start, y, width, plan.thick)], span.kind))
            if not canvas.narrow:
                lasted = duration(span.to_ms - span.from_ms)
                text = f"{span.name} for {lasted} from {instant(span.from_ms)}"
                content.append(tooltip(start, y, width, plan.thick, text))
        content.append(plan.names(index, row.name, row.note))
    content.append(time_axis(data.times, x, bottom - 4, bottom))
    return svg(canvas, bottom + AXIS_HEIGHT, *content)
