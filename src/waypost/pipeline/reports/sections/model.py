"""What a section is made of. Page and terminal show the same sections, each in its own way."""

from collections.abc import Callable

import msgspec

from waypost.pipeline.reports.charts.drawing import Look
from waypost.pipeline.reports.data import Facts, Period
from waypost.pipeline.reports.html import Markup


class Table(msgspec.Struct, frozen=True):
    """Words in rows. A column whose name is in `numbers` is set to the right."""

    caption: str
    columns: list[str]
    rows: list[list[str]]
    numbers: frozenset[str] = frozenset()
    after: str = ""
    """A line below: what was left out."""


class Figure(msgspec.Struct, frozen=True):
    """A drawing for any width, what it shows in a sentence, and the numbers in it."""

    title: str
    description: str
    draw: Callable[[Look], Markup]
    data: Table
    note: str = ""


class Section(msgspec.Struct, frozen=True):
    """A part of the report. `takeaway` is what to remember of it, and all if it is empty."""

    anchor: str
    title: str
    takeaway: str
    figures: list[Figure] = []
    tables: list[Table] = []


def named(facts: Facts, relay: str, name: str) -> str:
    """A subject; with its relay, if there are several."""
    several = len(facts.scope.relays) > 1
    return f"{name} @ {relay}" if several else name


def and_more(count: int, one: str, many: str = "") -> str:
    """`and 312 more inboxes`, or nothing."""
    if not count:
        return ""
    return f"and {count:,} more {one if count == 1 else many or one + 's'}"


def known_period(facts: Facts) -> Period:
    """The period of facts that have any."""
    if facts.period is None:
        raise ValueError("there is nothing to show in an empty period")
    return facts.period
