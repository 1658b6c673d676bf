"""How full many things were over time. A mark says where it is too much, besides the colour."""

import msgspec

from waypost.pipeline.reports.charts.drawing import (
    AXIS_HEIGHT,
    Look,
    Times,
    boxes,
    drawing,
    hover,
    line,
    time_axis,
)
from waypost.pipeline.reports.charts.legend import legend
from waypost.pipeline.reports.charts.rows import plan_rows
from waypost.pipeline.reports.formatting import instant
from waypost.pipeline.reports.html import Markup

_BELOW_WARNING = 4


class Cell(msgspec.Struct, frozen=True):
    """A value, 0 to 1, of a row (by its place) in the step that begins at `at_ms`."""

    row: int
    at_ms: int
    value: float


class Heatmap(msgspec.Struct, frozen=True):
    """Rows by name, with a note each. From `warning_at` on, a cell is marked."""

    times: Times
    rows: list[tuple[str, str]]
    cells: list[Cell]
    warning_at: float


def draw_heatmap(look: Look, data: Heatmap) -> Markup:
    """One row of cells below the other, over one time axis."""
    above, top = legend(_legend(data.warning_at), look.width)
    plan = plan_rows(look, top, 18, 6 if look.narrow else 4, data.rows)
    bottom = plan.bottom(len(data.rows))
    x = data.times.scale(plan.left, plan.right)
    by_kind: dict[str, list[tuple[float, float, float, float]]] = {}
    marks, hovers = [], []
    for cell in data.cells:
        start, end = x.at(cell.at_ms), x.at(cell.at_ms + data.times.step_ms)
        y, width = plan.y(cell.row), max(1.0, end - start - (0.6 if end - start > 3 else 0))
        kind = heat_class(cell.value, data.warning_at)
        by_kind.setdefault(kind, []).append((start, y, width, plan.thick))
        if cell.value >= data.warning_at:
            marks.append((start, y + plan.thick - 4, width, 4))
        if not look.narrow:
            words = f"{data.rows[cell.row][0]}, {instant(cell.at_ms)}: {cell.value:.0%}"
            hovers.append(hover(start, y, width, plan.thick, words))
    bare = [
        line(plan.left, y, plan.right, y)
        for y in (plan.y(place) + plan.thick / 2 for place in range(len(data.rows)))
    ]
    names = [plan.names(place, name, note) for place, (name, note) in enumerate(data.rows)]
    return drawing(
        look,
        bottom + AXIS_HEIGHT,
        above,
        *bare,
        *(boxes(places, kind) for kind, places in sorted(by_kind.items())),
        boxes(marks, "mark"),
        time_axis(data.times, x, bottom - 4, bottom),
        *names,
        *hovers,
    )


def heat_class(value: float, warning_at: float) -> str:
    """The class of a cell: four shades below the warning, two from there on."""
    if value >= 1:
        return "heat full"
    if value >= warning_at:
        return "heat warned"
    return f"heat heat{min(_BELOW_WARNING - 1, int(value / warning_at * _BELOW_WARNING))}"


def _legend(warning_at: float) -> list[tuple[str, str]]:
    edges = [warning_at * part / _BELOW_WARNING for part in range(_BELOW_WARNING + 1)]
    below = [
        (f"heat heat{part}", f"{edges[part]:.0%} to {edges[part + 1]:.0%}")
        for part in range(_BELOW_WARNING)
    ]
    return [
        *below,
        ("heat warned", f"{warning_at:.0%} and above (underlined)"),
        ("heat full", "full"),
    ]
