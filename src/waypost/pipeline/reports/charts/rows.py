"""Drawings with one row for each thing: names beside the rows, or above them on a phone."""

from collections.abc import Iterable

import msgspec

from waypost.pipeline.reports.charts.drawing import LETTER, Look, label
from waypost.pipeline.reports.formatting import cut
from waypost.pipeline.reports.html import Markup, joined, tag

_NAMES_WIDTH_MAX = 310


class RowPlan(msgspec.Struct, frozen=True):
    """Where rows and what belongs to them stand. Rows begin at `top`."""

    width: int
    narrow: bool
    top: float
    thick: float
    gap: float
    left: float
    right: float

    @property
    def each(self) -> float:
        """From one row to the next."""
        return self.thick + self.gap + (17 if self.narrow else 0)

    def y(self, place: int) -> float:
        """The upper edge of what is drawn in a row."""
        return self.top + place * self.each + (17 if self.narrow else 0)

    def bottom(self, rows: int) -> float:
        """Below the last row."""
        return self.top + rows * self.each

    def names(self, place: int, name: str, note: str = "") -> Markup:
        """What a row is called, and what is said at its end."""
        y = self.y(place)
        baseline = y - 5 if self.narrow else y + self.thick / 2 + 4
        space = self.width - len(note) * LETTER - 12 if self.narrow else self.left - 12
        shown = cut(name, max(8, int(space / LETTER)))
        whole = tag("title", name) if shown != name else Markup("")
        own = tag("text", whole, shown, x=0, y=baseline, class_="name")
        if not note:
            return own
        at = self.width if self.narrow else self.right + 10
        return joined(own, label(at, baseline, note, "end" if self.narrow else None, "note"))


def plan_rows(
    look: Look, top: float, thick: float, gap: float, texts: Iterable[tuple[str, str]]
) -> RowPlan:
    """Room for `texts`: names on the left and notes on the right, or both above on a phone."""
    if look.narrow:
        return RowPlan(look.width, True, top, thick, gap, 0, look.width)
    names, notes = (max(map(len, column), default=0) for column in _columns(texts))
    left = min(_NAMES_WIDTH_MAX, names * LETTER + 14)
    right = look.width - (notes * LETTER + 12 if notes else 0)
    return RowPlan(look.width, False, top, thick, gap, left, right)


def _columns(texts: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    pairs = list(texts)
    return [name for name, _ in pairs], [note for _, note in pairs]
