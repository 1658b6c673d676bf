"""SVG parts of every chart: size, accessible name, labels, rectangles and the time axis."""

from collections.abc import Sequence

import msgspec

from waypost.pipeline.reports.charts.scales import Linear, time_ticks
from waypost.pipeline.reports.html import Markup, coordinate, joined, tag

WIDE = 900
NARROW = 350
CHAR_WIDTH = 6.9
"""Pixels of an average character in labels, to estimate the width of text."""
AXIS_HEIGHT = 24


class Canvas(msgspec.Struct, frozen=True):
    """The width of a chart, and its texts. `name` is unique in the page."""

    name: str
    title: str
    description: str
    width: int = WIDE

    @property
    def narrow(self) -> bool:
        """Return whether the chart is for a phone: fewer labels, above the rows."""
        return self.width < 600


class Times(msgspec.Struct, frozen=True):
    """The time span of a chart, and the length of its steps."""

    first_ms: int
    last_ms: int
    step_ms: int

    def scale(self, start: float, end: float) -> Linear:
        """Return the scale from times to pixels, with room for all of the last step."""
        return Linear(self.first_ms, self.end_ms, start, end)

    @property
    def end_ms(self) -> int:
        """Return the end of the last step."""
        steps = max(1, -(-(self.last_ms - self.first_ms) // self.step_ms))
        return self.first_ms + steps * self.step_ms


def svg(canvas: Canvas, height: float, *content: str) -> Markup:
    """Return the SVG element of a chart."""
    return tag(
        "svg",
        tag("title", canvas.title, id=f"{canvas.name}-title"),
        tag("desc", canvas.description, id=f"{canvas.name}-desc"),
        *content,
        class_="narrow" if canvas.narrow else "wide",
        viewBox=f"0 0 {canvas.width} {coordinate(height)}",
        role="img",
        aria_labelledby=f"{canvas.name}-title {canvas.name}-desc",
    )


def label(x: float, y: float, text: str, anchor: str | None = None, kind: str = "") -> Markup:
    """Return text at a point; `anchor` is `middle` or `end` if it does not start there."""
    return tag("text", text, x=x, y=y, text_anchor=anchor, class_=kind or None)


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> Markup:
    """Return a straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def boxes(rectangles: Sequence[tuple[float, float, float, float]], kind: str) -> Markup:
    """Return many rectangles (x, y, width, height) of one kind as one short path."""
    path = "".join(
        f"M{coordinate(x)} {coordinate(y)}h{coordinate(width)}v{coordinate(height)}"
        f"h{coordinate(-width)}z"
        for x, y, width, height in rectangles
    )
    return tag("path", d=path, class_=kind) if rectangles else Markup("")


def tooltip(x: float, y: float, width: float, height: float, text: str) -> Markup:
    """Return an invisible rectangle that shows `text` when pointed at."""
    return tag("rect", tag("title", text), x=x, y=y, width=width, height=height, class_="hover")


def time_axis(times: Times, scale: Linear, top: float, bottom: float) -> Markup:
    """Return labels below `bottom`, each with a faint line from `top` down."""
    most = max(2, int((scale.end - scale.start) // 72))
    pieces = [line(scale.start, bottom, scale.end, bottom, "axis")]
    for tick in time_ticks(times.first_ms, times.end_ms, most):
        x = scale.at(tick.at_ms)
        half = len(tick.label) * CHAR_WIDTH / 2
        anchor = "middle"
        if x - half < scale.start - 4:
            anchor = "start"
        elif x + half > scale.end + 4:
            anchor = "end"
        pieces.append(line(x, top, x, bottom, "grid"))
        pieces.append(label(x, bottom + 16, tick.label, anchor, "day" if tick.major else ""))
    return joined(*pieces)
