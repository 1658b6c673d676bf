"""The legend of a chart."""

from waypost.pipeline.reports.charts.svg import CHAR_WIDTH, label
from waypost.pipeline.reports.html import Markup, joined, tag

HEIGHT = 26
_MARK = 14
_GAP = 18


def legend(entries: list[tuple[str, str]], width: float) -> tuple[Markup, float]:
    """Return entries (kind, name) in rows at most `width` wide, and their height."""
    x, y = 0.0, 0.0
    pieces = []
    for kind, name in entries:
        entry_width = _MARK + 6 + len(name) * CHAR_WIDTH + _GAP
        if x and x + entry_width - _GAP > width:
            x, y = 0.0, y + 20
        pieces.append(_mark(x, y, kind))
        pieces.append(label(x + _MARK + 6, y + 12, name, kind="name"))
        x += entry_width
    return joined(*pieces), y + HEIGHT


def _mark(x: float, y: float, kind: str) -> Markup:
    if kind.startswith("line"):
        return tag("path", d=f"M{x} {y + 8}h{_MARK}", class_=kind)
    return tag("rect", x=x, y=y + 2, width=_MARK, height=12, class_=kind)
