"""Spans of time in rows: what was in which state, from when to when."""

import msgspec

from waypost.pipeline.reports.charts.drawing import (
    AXIS_HEIGHT,
    Look,
    Times,
    boxes,
    drawing,
    hover,
    time_axis,
)
from waypost.pipeline.reports.charts.legend import legend
from waypost.pipeline.reports.charts.rows import plan_rows
from waypost.pipeline.reports.formatting import duration, instant
from waypost.pipeline.reports.html import Markup


class Span(msgspec.Struct, frozen=True):
    """From when to when something was of a kind (a class), and what that is called."""

    from_ms: int
    to_ms: int
    kind: str
    words: str


class TimelineRow(msgspec.Struct, frozen=True):
    """A name, its spans, and what is said at the end."""

    name: str
    spans: list[Span]
    note: str


class Timeline(msgspec.Struct, frozen=True):
    """Rows over one time axis. `kinds`: (class, name) for the legend."""

    times: Times
    rows: list[TimelineRow]
    kinds: list[tuple[str, str]]


def draw_timeline(look: Look, data: Timeline) -> Markup:
    """One row below the other; a span is seen however short it is."""
    above, top = legend(data.kinds, look.width)
    plan = plan_rows(look, top, 16, 6, [(row.name, row.note) for row in data.rows])
    bottom = plan.bottom(len(data.rows))
    x = data.times.scale(plan.left, plan.right)
    order = {kind: place for place, (kind, _) in enumerate(data.kinds)}
    content = [above]
    for place, row in enumerate(data.rows):
        y = plan.y(place)
        content.append(boxes([(plan.left, y, plan.right - plan.left, plan.thick)], "track"))
        # Where short spans lie on each other, the first of the kinds is the one to be seen.
        for span in sorted(row.spans, key=lambda one: -order.get(one.kind, 0)):
            start = min(x.at(span.from_ms), plan.right - 2)
            width = max(2.0, x.at(span.to_ms) - start)
            content.append(boxes([(start, y, width, plan.thick)], span.kind))
            if not look.narrow:
                lasted = duration(span.to_ms - span.from_ms)
                words = f"{span.words} for {lasted} from {instant(span.from_ms)}"
                content.append(hover(start, y, width, plan.thick, words))
        content.append(plan.names(place, row.name, row.note))
    content.append(time_axis(data.times, x, bottom - 4, bottom))
    return drawing(look, bottom + AXIS_HEIGHT, *content)
