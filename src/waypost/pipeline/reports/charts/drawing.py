"""What every drawing has: a size, a name for those who cannot see it, letters and a time axis."""

from collections.abc import Sequence

import msgspec

from waypost.pipeline.reports.charts.scales import Linear, time_ticks
from waypost.pipeline.reports.html import Markup, coordinate, joined, tag

WIDE = 900
NARROW = 350
LETTER = 6.9
"""Pixels of an average letter at the size of labels; widths of text can only be guessed here."""
AXIS_HEIGHT = 24


class Look(msgspec.Struct, frozen=True):
    """For which width to draw, and what the drawing is called. `name` is unique in the page."""

    name: str
    title: str
    description: str
    width: int = WIDE

    @property
    def narrow(self) -> bool:
        """Whether it is for a phone: labels stand above rows, and there are fewer of them."""
        return self.width < 600


class Times(msgspec.Struct, frozen=True):
    """The time a drawing shows, and how long a step of it is."""

    first_ms: int
    last_ms: int
    step_ms: int

    def scale(self, start: float, end: float) -> Linear:
        """Instants to pixels, with room for the whole of the last step."""
        return Linear(self.first_ms, self.end_ms, start, end)

    @property
    def end_ms(self) -> int:
        """The end of the last step."""
        steps = max(1, -(-(self.last_ms - self.first_ms) // self.step_ms))
        return self.first_ms + steps * self.step_ms


def drawing(look: Look, height: float, *content: str) -> Markup:
    """The SVG element around a drawing."""
    return tag(
        "svg",
        tag("title", look.title, id=f"{look.name}-title"),
        tag("desc", look.description, id=f"{look.name}-desc"),
        *content,
        class_="narrow" if look.narrow else "wide",
        viewBox=f"0 0 {look.width} {coordinate(height)}",
        role="img",
        aria_labelledby=f"{look.name}-title {look.name}-desc",
    )


def label(x: float, y: float, words: str, anchor: str | None = None, kind: str = "") -> Markup:
    """Text at a point; `anchor` is `middle` or `end` if it does not begin there."""
    return tag("text", words, x=x, y=y, text_anchor=anchor, class_=kind or None)


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def boxes(places: Sequence[tuple[float, float, float, float]], kind: str) -> Markup:
    """Many rectangles (x, y, width, height) of one kind, as one short path."""
    path = "".join(
        f"M{coordinate(x)} {coordinate(y)}h{coordinate(width)}v{coordinate(height)}"
        f"h{coordinate(-width)}z"
        for x, y, width, height in places
    )
    return tag("path", d=path, class_=kind) if places else Markup("")


def hover(x: float, y: float, width: float, height: float, words: str) -> Markup:
    """An invisible rectangle that tells what is there when pointed at."""
    return tag("rect", tag("title", words), x=x, y=y, width=width, height=height, class_="hover")


def time_axis(times: Times, scale: Linear, top: float, bottom: float) -> Markup:
    """Labels below `bottom`, and a faint line from `top` down for each."""
    most = max(2, int((scale.end - scale.start) // 72))
    pieces = [line(scale.start, bottom, scale.end, bottom, "axis")]
    for tick in time_ticks(times.first_ms, times.end_ms, most):
        x = scale.at(tick.at_ms)
        half = len(tick.label) * LETTER / 2
        anchor = "middle"
        if x - half < scale.start - 4:
            anchor = "start"
        elif x + half > scale.end + 4:
            anchor = "end"
        pieces.append(line(x, top, x, bottom, "grid"))
        pieces.append(label(x, bottom + 16, tick.label, anchor, "day" if tick.major else ""))
    return joined(*pieces)
