"""Plots of a results file as SVG: the marks, and the steady load over time.

SVG as in the report of the pipeline, without a plotting library; here with colours of their own,
because a page of Markdown has no style for them. They follow light and dark themes.
"""

from typing import Any, NamedTuple

from bench.marks import MARKS, REACHED, SMALLER
from bench.series import median, number_text
from waypost.pipeline.reports.charts.scales import Linear, Logarithmic, ticks
from waypost.pipeline.reports.charts.svg import label, line
from waypost.pipeline.reports.html import Markup, coordinate, joined, tag


class Picture(NamedTuple):
    """A plot: its file name without ending, and its title."""

    name: str
    title: str


MARKS_PICTURE = Picture("bench-marks", "Every figure relative to its mark")
STEADY_PICTURE = Picture("bench-steady", "A served relay at 80 % of its peak")
WIDTH = 900
ROW = 22
LEFT = 420
STYLE = (
    "text { font: 12px sans-serif; fill: #444 } .grid { stroke: #8884 } .axis { stroke: #888 }"
    " .reached { fill: #2a7f62 } .short { fill: #c2571a }"
    " path { fill: none; stroke-width: 2 } .p50, .memory { stroke: #2a6fb0 } .p99 { stroke: #c2571a"
    " } @media (prefers-color-scheme: dark) { text { fill: #bbb } }"
)
PANEL = 180


def plots(results: dict[str, Any]) -> dict[str, str]:
    """Return the plots that these results allow, by file name without its ending."""
    found = {}
    if any(mark.measured(results) for mark in MARKS):
        found[MARKS_PICTURE.name] = draw_marks(results)
    samples = results["benchmarks"].get("steady", {}).get("samples")
    if samples:
        found[STEADY_PICTURE.name] = draw_steady(samples)
    return found


def draw_marks(results: dict[str, Any]) -> str:
    """Draw each figure relative to its mark: right of the line it is reached.

    A figure that should be small is shown as mark by figure.
    """
    reserves = []
    for mark in MARKS:
        runs = mark.measured(results)
        if runs is not None and (outcome := mark.outcome(results, runs)) != SMALLER:
            value = max(median(runs), 1e-9)
            bound = mark.at_least if mark.at_most is None else None
            reserve = value / bound if bound is not None else (mark.at_most or 1.0) / value
            reserves.append((mark.name, reserve, outcome == REACHED))
    scale = Logarithmic(0.1, 10.0, LEFT, WIDTH - 60)
    height = ROW * (len(reserves) + 2)
    pieces = []
    for tick in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0):
        x = scale.at(tick)
        pieces.append(line(x, ROW, x, height - ROW, "axis" if tick == 1 else "grid"))
        pieces.append(label(x, height - 6, f"{tick:g}", "middle"))
    pieces.append(label(scale.at(1.0), 14, "the mark", "middle"))
    for row, (name, reserve, reached) in enumerate(reserves, start=1):
        y = row * ROW + ROW / 2
        begin, end = sorted((scale.at(1.0), scale.at(reserve)))
        pieces.append(label(LEFT - 8, y + 4, name, "end"))
        pieces.append(
            tag(
                "rect",
                tag("title", f"{name}: {reserve:.2f} of the mark"),
                x=begin,
                y=y - 7,
                width=max(1.0, end - begin),
                height=14,
                class_="reached" if reached else "short",
            )
        )
    return _document(MARKS_PICTURE.title, height, *pieces)


def draw_steady(samples: list[dict[str, float]]) -> str:
    """Draw memory and latency over time, one above the other."""
    steps = ticks(samples[-1]["at_s"], 6)
    x = Linear(0, steps[-1], 70, WIDTH - 30)
    memory = _panel(samples, ["memory_mb"], x, 30, "memory of the relay, MB")
    latency = _panel(samples, ["p50_ms", "p99_ms"], x, 30 + PANEL + 50, "latency, ms: p50, p99")
    height = 2 * PANEL + 110
    axis = [label(x.at(step), height - 8, f"{step:g} s", "middle") for step in steps]
    return _document(STEADY_PICTURE.title, height, memory, latency, *axis)


def _panel(
    samples: list[dict[str, float]], kinds: list[str], x: Linear, top: float, title: str
) -> Markup:
    highest = max(sample[kind] for sample in samples for kind in kinds)
    marks = ticks(highest, 4)
    y = Linear(0, marks[-1], top + PANEL, top)
    pieces = [label(x.start, top - 10, title)]
    for mark in marks:
        pieces.append(line(x.start, y.at(mark), x.end, y.at(mark)))
        pieces.append(label(x.start - 8, y.at(mark) + 4, number_text(mark), "end"))
    for kind in kinds:
        points = [
            f"{'L' if index else 'M'}{coordinate(x.at(one['at_s']))} {coordinate(y.at(one[kind]))}"
            for index, one in enumerate(samples)
        ]
        pieces.append(tag("path", d="".join(points), class_=kind.partition("_")[0]))
    return joined(*pieces)


def _document(title: str, height: float, *content: str) -> str:
    return tag(
        "svg",
        tag("title", title),
        tag("style", Markup(STYLE)),
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {coordinate(height)}",
        role="img",
    )
