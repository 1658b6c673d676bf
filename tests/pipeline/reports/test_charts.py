"""Charts: scales for any numbers, and charts without values, with one, with equal ones."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.pipeline.reports.charts.bars import Bar, Bars, draw_bars
from waypost.pipeline.reports.charts.columns import (
    Columns,
    Series,
    Strip,
    Strips,
    draw_columns,
    draw_strips,
)
from waypost.pipeline.reports.charts.heatmap import Cell, Heatmap, draw_heatmap, heat_class
from waypost.pipeline.reports.charts.lines import Line, Lines, draw_lines
from waypost.pipeline.reports.charts.scales import (
    Linear,
    Logarithmic,
    duration_decades,
    duration_ticks,
    ticks,
    time_ticks,
)
from waypost.pipeline.reports.charts.svg import NARROW, WIDE, Canvas, Times
from waypost.pipeline.reports.charts.timeline import Span, Timeline, TimelineRow, draw_timeline
from waypost.pipeline.reports.formatting import DAY_MS, HOUR_MS, MINUTE_MS

FIRST = 1_767_448_800_000
TIMES = Times(FIRST, FIRST + HOUR_MS, MINUTE_MS)
sizes = st.floats(min_value=1e-6, max_value=1e12)


def canvas(width: int = WIDE) -> Canvas:
    return Canvas("chart", "A title", "What it shows", width)


def draw(steps: dict[int, float], width: int) -> list[str]:
    """Draw the same values with every chart over time."""
    last = FIRST + 10 * MINUTE_MS
    spans = [Span(at, at + 1, "open", "open") for at in steps]
    cells = [Cell(0, at, min(1.0, value)) for at, value in steps.items()]
    return [
        draw_columns(canvas(width), Columns(TIMES, [Series("a", "stored", steps)])),
        draw_lines(canvas(width), Lines(TIMES, [Line("a", "line p50", steps)])),
        draw_strips(canvas(width), Strips(TIMES, [Strip("a", steps, "note")])),
        draw_heatmap(canvas(width), Heatmap(TIMES, [("a", "note")], cells, 0.8)),
        draw_timeline(canvas(width), Timeline(TIMES, [TimelineRow("a", spans, "")], [])),
        draw_bars(
            canvas(width),
            Bars([Bar(str(at < last), [("stored", one)], "") for at, one in steps.items()]),
        ),
    ]


@given(sizes, st.integers(2, 8), st.booleans())
def test_ticks_are_even_steps_from_zero_past_the_top(top: float, most: int, whole: bool) -> None:
    marks = ticks(top, most, whole=whole)
    assert marks[0] == 0
    assert marks[-1] >= top * (1 - 1e-6) - 1e-9
    assert 2 <= len(marks) <= most + 1
    steps = [after - before for before, after in pairwise(marks)]
    assert max(steps) == pytest.approx(min(steps), rel=1e-3, abs=2e-10)
    if whole:
        assert all(mark == int(mark) for mark in marks)


@pytest.mark.parametrize("top", [0, -3, float("nan"), float("inf")])
def test_ticks_without_values_still_form_an_axis(top: float) -> None:
    marks = ticks(top)
    assert (marks[0], marks[-1]) == (0, 1)


@given(st.floats(0, 1e11))
def test_ticks_of_durations_are_whole_in_a_common_unit(top_ms: float) -> None:
    marks = duration_ticks(top_ms, 4)
    assert marks[-1] >= top_ms * (1 - 1e-6)
    assert 2 <= len(marks) <= 5


def test_ticks_of_minutes_are_not_odd_seconds() -> None:
    assert duration_ticks(250_000, 5) == [0, 60_000, 120_000, 180_000, 240_000, 300_000]


@given(st.floats(1e-3, 1e11), st.floats(1, 1e9))
def test_decades_grow_and_hold_all_values_between_them(low: float, ratio: float) -> None:
    marks = duration_decades(low, low * ratio)
    assert marks == sorted(set(marks))
    assert len(marks) >= 2
    assert marks[0] <= low
    assert marks[-1] >= low * ratio


@given(sizes, sizes, st.floats(0, 1))
def test_scales_stay_inside_their_pixels_and_in_order(
    one: float, other: float, part: float
) -> None:
    low, high = sorted((one, other))
    linear = Linear(low, high, 10, 90)
    value = low + part * (high - low)
    assert 10 <= linear.at(value) <= 90
    assert linear.at(low - 1) == 10
    assert linear.at(low) <= linear.at(value)
    if high > low * 1.01:
        logarithmic = Logarithmic(low, high, 90, 10)
        assert 10 - 1e-6 <= logarithmic.at(value) <= 90 + 1e-6
        assert logarithmic.at(0) == 90
        assert logarithmic.at(low) >= logarithmic.at(high)


@given(st.integers(0, 2**41), st.integers(1, 40 * 365 * DAY_MS), st.integers(2, 12))
def test_time_ticks_are_few_in_order_and_inside(first: int, span: int, most: int) -> None:
    marks = time_ticks(first, first + span, most)
    instants = [mark.at_ms for mark in marks]
    assert len(marks) <= most
    assert instants == sorted(set(instants))
    assert all(first <= at <= first + span for at in instants)


def test_a_day_begins_with_its_date_and_hours_are_hours() -> None:
    marks = time_ticks(FIRST, FIRST + DAY_MS, 4)
    assert [(mark.label, mark.major) for mark in marks] == [
        ("18:00", False),
        ("4 Jan", True),
        ("06:00", False),
        ("12:00", False),
    ]


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize(
    "values",
    [[], [0], [5], [7, 7, 7, 7], [0, 0, 0], [1, 1e9], [1e-9, 3]],
    ids=["nothing", "zero", "one", "equal", "zeros", "far apart", "tiny"],
)
def test_charts_of_any_numbers_are_drawn_inside_their_size(width: int, values: list[float]) -> None:
    steps = {FIRST + index * MINUTE_MS: float(value) for index, value in enumerate(values)}
    for picture in draw(steps, width):
        assert "nan" not in picture
        assert "inf" not in picture
        size = re.search(r'viewBox="0 0 \d+ ([\d.]+)"', picture)
        assert size is not None
        high = float(size.group(1))
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", picture):
            assert -0.1 <= float(x) <= width + 0.1
            assert -0.1 <= float(y) <= high + 0.1


def test_columns_stand_on_each_other_and_are_as_high_as_their_numbers() -> None:
    kinds = [Series("a", "stored", {FIRST: 75.0}), Series("b", "rejected", {FIRST: 25.0})]
    picture = draw_columns(canvas(), Columns(TIMES, kinds))
    heights = {
        kind: float(height)
        for height, kind in re.findall(
            r'd="M[\d.]+ [\d.]+h[\d.]+v([\d.]+)h[^"]*" class="(\w+)"', picture
        )
    }
    assert heights["stored"] == pytest.approx(3 * heights["rejected"], abs=0.3)


def test_a_line_is_broken_where_there_is_no_value() -> None:
    whole = {FIRST + index * MINUTE_MS: 5.0 for index in range(6)}
    gap = {at: value for at, value in whole.items() if at != FIRST + 2 * MINUTE_MS}

    def pieces(values: dict[int, float]) -> int:
        picture = draw_lines(canvas(), Lines(TIMES, [Line("a", "line p50", values)]))
        return _path(picture).count("M")

    assert (pieces(whole), pieces(gap)) == (1, 2)


def test_a_value_on_its_own_is_a_dot() -> None:
    picture = draw_lines(canvas(), Lines(TIMES, [Line("a", "line p50", {FIRST: 5.0})]))
    assert picture.count("<circle") == 1


def test_a_cell_above_the_warning_has_a_mark_besides_its_colour() -> None:
    assert [heat_class(value, 0.8) for value in (0, 0.79, 0.8, 1)] == [
        "heat heat0",
        "heat heat3",
        "heat warned",
        "heat full",
    ]
    cells = [Cell(0, FIRST, 0.79), Cell(0, FIRST + MINUTE_MS, 0.8)]
    picture = draw_heatmap(canvas(), Heatmap(TIMES, [("a", "")], cells, 0.8))
    (marks,) = re.findall(r'd="([^"]*)" class="mark"', picture)
    assert marks.count("M") == 1


def test_a_short_span_stays_visible() -> None:
    row = TimelineRow("a", [Span(TIMES.last_ms - 1, TIMES.last_ms, "open", "open")], "")
    picture = draw_timeline(canvas(), Timeline(TIMES, [row], [("open", "open")]))
    (width,) = re.findall(r'd="M[\d.]+ [\d.]+h([\d.]+)v[^"]*" class="open"', picture)
    assert float(width) >= 2


def test_a_long_name_is_shortened_and_shown_in_full_on_hover() -> None:
    name = "agent." + "very-long." * 20 + "end"
    picture = draw_bars(canvas(NARROW), Bars([Bar(name, [("stored", 1)], "100%")]))
    assert f"<title>{name}</title>" in picture
    assert "ng.end</text>" in picture


def _path(picture: str) -> str:
    return "".join(re.findall(r'd="([^"]*L[^"]*)"', picture))
