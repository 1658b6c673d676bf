"""Heat map: values from 0 to 1 of many rows over time; a mark shows those above the warning."""

import msgspec

from waypost.pipeline.reports.charts.legend import legend
from waypost.pipeline.reports.charts.rows import plan_rows
from waypost.pipeline.reports.charts.svg import (
    AXIS_HEIGHT,
    Canvas,
    Times,
    boxes,
    line,
    svg,
    time_axis,
    tooltip,
)
from waypost.pipeline.reports.formatting import instant
from waypost.pipeline.reports.html import Markup

_BELOW_WARNING = 4


class Cell(msgspec.Struct, frozen=True):
    """A value, 0 to 1, of a row (by its index) in the step that begins at `at_ms`."""

    row: int
    at_ms: int
    value: float


class Heatmap(msgspec.Struct, frozen=True):
    """Rows with name and note. Cells at or above `warning_at` are marked."""

    times: Times
    rows: list[tuple[str, str]]
    cells: list[Cell]
    warning_at: float


def draw_heatmap(canvas: Canvas, data: Heatmap) -> Markup:
    """Draw the rows of cells over one time axis."""
    above, top = legend(_legend(data.warning_at), canvas.width)
    plan = plan_rows(canvas, top, 18, 6 if canvas.narrow else 4, data.rows)
    bottom = plan.bottom(len(data.rows))
    x = data.times.scale(plan.left, plan.right)
    by_kind: dict[str, list[tuple[float, float, float, float]]] = {}
    marks, tooltips = [], []
    for cell in data.cells:
        start, end = x.at(cell.at_ms), x.at(cell.at_ms + data.times.step_ms)
        y, width = plan.y(cell.row), max(1.0, end - start - (0.6 if end - start > 3 else 0))
        kind = heat_class(cell.value, data.warning_at)
        by_kind.setdefault(kind, []).append((start, y, width, plan.thick))
        if cell.value >= data.warning_at:
            marks.append((start, y + plan.thick - 4, width, 4))
        if not canvas.narrow:
            text = f"{data.rows[cell.row][0]}, {instant(cell.at_ms)}: {cell.value:.0%}"
            tooltips.append(tooltip(start, y, width, plan.thick, text))
    base_lines = [
        line(plan.left, y, plan.right, y)
        for y in (plan.y(index) + plan.thick / 2 for index in range(len(data.rows)))
    ]
    names = [plan.names(index, name, note) for index, (name, note) in enumerate(data.rows)]
    return svg(
        canvas,
        bottom + AXIS_HEIGHT,
        above,
        *base_lines,
        *(boxes(cells, kind) for kind, cells in sorted(by_kind.items())),
        boxes(marks, "mark"),
        time_axis(data.times, x, bottom - 4, bottom),
        *names,
        *tooltips,
    )


def heat_class(value: float, warning_at: float) -> str:
    """Return the class of a cell: four shades below the warning level, two above."""
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
