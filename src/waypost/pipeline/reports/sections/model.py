"""The parts of a section. Page and terminal render the same sections, each in its own way."""

from collections.abc import Callable

import msgspec

from waypost.pipeline.reports.charts.svg import Canvas
from waypost.pipeline.reports.data import Period, ReportData
from waypost.pipeline.reports.html import Markup


class ReportTable(msgspec.Struct, frozen=True):
    """A table of texts. Columns named in `numbers` are right-aligned."""

    caption: str
    columns: list[str]
    rows: list[list[str]]
    numbers: frozenset[str] = frozenset()
    after: str = ""
    """A line below the table, such as the number of omitted rows."""


class Figure(msgspec.Struct, frozen=True):
    """A chart for any width, its description in a sentence, and its data as a table."""

    title: str
    description: str
    draw: Callable[[Canvas], Markup]
    data: ReportTable
    note: str = ""


class Section(msgspec.Struct, frozen=True):
    """A section. `takeaway` is its main statement, and its only content without data."""

    anchor: str
    title: str
    takeaway: str
    figures: list[Figure] = []
    tables: list[ReportTable] = []


def qualified_name(report: ReportData, relay: str, name: str) -> str:
    """Return a subject, with its relay if there are several."""
    several = len(report.scope.relays) > 1
    return f"{name} @ {relay}" if several else name


def omitted(count: int, one: str, many: str = "") -> str:
    """Return `and 312 more inboxes`, or an empty text."""
    if not count:
        return ""
    return f"and {count:,} more {one if count == 1 else many or one + 's'}"


def require_period(report: ReportData) -> Period:
    """Return the period of a report. Raises `ValueError` if it has none."""
    if report.period is None:
        raise ValueError("the report has no period: the lake has no traffic")
    return report.period
