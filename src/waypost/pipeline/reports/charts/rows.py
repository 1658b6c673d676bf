"""Layout of charts with rows: names beside the rows, or above them on a phone."""

from collections.abc import Iterable

import msgspec

from waypost.pipeline.reports.charts.svg import CHAR_WIDTH, Canvas, label
from waypost.pipeline.reports.formatting import shorten
from waypost.pipeline.reports.html import Markup, joined, tag

_NAMES_WIDTH_MAX = 310


class RowPlan(msgspec.Struct, frozen=True):
    """Positions of rows, names and notes. Rows begin at `top`."""

    width: int
    narrow: bool
    top: float
    thick: float
    gap: float
    left: float
    right: float

    @property
    def each(self) -> float:
        """Return the distance from one row to the next."""
        return self.thick + self.gap + (17 if self.narrow else 0)

    def y(self, row: int) -> float:
        """Return the upper edge of the content of a row."""
        return self.top + row * self.each + (17 if self.narrow else 0)

    def bottom(self, rows: int) -> float:
        """Return the lower edge of the last row."""
        return self.top + rows * self.each

    def names(self, row: int, name: str, note: str = "") -> Markup:
        """Return the name of a row, and the note at its end."""
        y = self.y(row)
        baseline = y - 5 if self.narrow else y + self.thick / 2 + 4
        space = self.width - len(note) * CHAR_WIDTH - 12 if self.narrow else self.left - 12
        shown = shorten(name, max(8, int(space / CHAR_WIDTH)))
        whole = tag("title", name) if shown != name else Markup("")
        own = tag("text", whole, shown, x=0, y=baseline, class_="name")
        if not note:
            return own
        at = self.width if self.narrow else self.right + 10
        return joined(own, label(at, baseline, note, "end" if self.narrow else None, "note"))


def plan_rows(
    canvas: Canvas, top: float, thick: float, gap: float, texts: Iterable[tuple[str, str]]
) -> RowPlan:
    """Plan rows for `texts`: names on the left and notes on the right, or both above on a phone."""
    if canvas.narrow:
        return RowPlan(canvas.width, True, top, thick, gap, 0, canvas.width)
    names, notes = (max(map(len, column), default=0) for column in _columns(texts))
    left = min(_NAMES_WIDTH_MAX, names * CHAR_WIDTH + 14)
    right = canvas.width - (notes * CHAR_WIDTH + 12 if notes else 0)
    return RowPlan(canvas.width, False, top, thick, gap, left, right)


def _columns(texts: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    pairs = list(texts)
    return [name for name, _ in pairs], [note for _, note in pairs]
