"""Which mark stands for what."""

from waypost.pipeline.reports.charts.drawing import LETTER, label
from waypost.pipeline.reports.html import Markup, joined, tag

HEIGHT = 26
_MARK = 14
_GAP = 18


def legend(entries: list[tuple[str, str]], width: float) -> tuple[Markup, float]:
    """Marks (kind, name) in rows no wider than `width`, and how high that is."""
    x, y = 0.0, 0.0
    pieces = []
    for kind, name in entries:
        needs = _MARK + 6 + len(name) * LETTER + _GAP
        if x and x + needs - _GAP > width:
            x, y = 0.0, y + 20
        pieces.append(_mark(x, y, kind))
        pieces.append(label(x + _MARK + 6, y + 12, name, kind="name"))
        x += needs
    return joined(*pieces), y + HEIGHT


def _mark(x: float, y: float, kind: str) -> Markup:
    if kind.startswith("line"):
        return tag("path", d=f"M{x} {y + 8}h{_MARK}", class_=kind)
    return tag("rect", x=x, y=y + 2, width=_MARK, height=12, class_=kind)
