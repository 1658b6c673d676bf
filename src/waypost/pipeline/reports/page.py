"""Renders the sections as one HTML file: text, tables and SVG, no scripts, no network."""

from collections.abc import Mapping
from pathlib import Path
from string import Template

from waypost.pipeline.reports.charts.svg import NARROW, WIDE, Canvas
from waypost.pipeline.reports.data import ReportData
from waypost.pipeline.reports.formatting import day
from waypost.pipeline.reports.html import Markup, joined, tag
from waypost.pipeline.reports.sections import all_sections
from waypost.pipeline.reports.sections.findings import ReportFinding, what_to_look_at
from waypost.pipeline.reports.sections.headline import headline, tiles
from waypost.pipeline.reports.sections.model import Figure, ReportTable, Section

_TEMPLATE = Path(__file__).with_name("page.html")
_STYLE = Path(__file__).with_name("page.css")
_ROLES = ("table", "rowgroup", "row", "columnheader", "rowheader", "cell")
_SENTENCE_CHARS = 24
"""Longer texts beside the first column do not fit on a phone."""


def render_page(report: ReportData) -> str:
    """Render the page. The same data gives the same page."""
    sections = all_sections(report)
    period = period_text(report)
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=joined(f"Waypost report: {period}"),
        style=_STYLE.read_text(encoding="utf-8").strip(),
        period=joined(period),
        headline=joined(headline(report)),
        tiles=_tiles(report) if report.period else "",
        contents=_contents(sections) if report.period else "",
        findings=_findings(what_to_look_at(report)) if report.period else "",
        sections="\n".join(_section(one) for one in sections) if report.period else "",
        colophon=joined(_colophon(report)),
    )


def period_text(report: ReportData) -> str:
    """Return the days that a report covers."""
    if report.period is None:
        return "no traffic yet"
    first, last = (
        day(report.period.first_ms),
        day(max(report.period.first_ms, report.period.last_ms - 1)),
    )
    return first if first == last else f"{first} to {last}"


def _colophon(report: ReportData) -> str:
    return (
        f"All times are UTC. Built from version {report.scope.lake_version} of the lake."
        " Percentiles of waiting times are actual values, with a rank error of at most 1 in 10,000."
    )


def _tiles(report: ReportData) -> Markup:
    return tag(
        "dl",
        *(
            tag(
                "div",
                tag("dt", one.name),
                tag("dd", one.value, class_="value"),
                tag("dd", one.note, class_="note"),
            )
            for one in tiles(report)
        ),
        class_="tiles",
    )


def _contents(sections: list[Section]) -> Markup:
    links = [tag("li", tag("a", one.title, href=f"#{one.anchor}")) for one in sections]
    return tag("nav", tag("ul", *links), aria_label="Sections")


def _findings(found: list[ReportFinding]) -> Markup:
    title = tag("h2", "What to look at", id="look-at")
    if not found:
        quiet = tag("p", "Nothing needs attention in this period.")
        return tag("section", title, quiet, class_="findings quiet", aria_labelledby="look-at")
    entries = [
        tag(
            "li",
            tag("a", one.kind, href=f"#{one.anchor}"),
            tag("div", tag("p", one.text), tag("p", one.advice, class_="advice")),
        )
        for one in found
    ]
    return tag("section", title, tag("ol", *entries), class_="findings", aria_labelledby="look-at")


def _section(section: Section) -> Markup:
    figures = [
        _figure(one, f"{section.anchor}-{index}") for index, one in enumerate(section.figures)
    ]
    drawn = tag("div", *figures, class_="many") if len(figures) > 1 else joined(*figures)
    # A figure's own table is not repeated below it.
    drawn_data = [one.data for one in section.figures]
    title = f"{section.anchor}-heading"
    return tag(
        "section",
        tag("h2", section.title, id=title),
        tag("p", section.takeaway, class_="takeaway"),
        drawn,
        *(
            tag("div", _table(one), class_="plain")
            for one in section.tables
            if one not in drawn_data
        ),
        id=section.anchor,
        aria_labelledby=title,
    )


def _figure(figure: Figure, name: str) -> Markup:
    canvases = [
        Canvas(f"{name}-{kind}", figure.title, figure.description, width)
        for kind, width in (("wide", WIDE), ("narrow", NARROW))
    ]
    note = tag("small", figure.note) if figure.note else Markup("")
    return tag(
        "figure",
        tag("figcaption", figure.title, note),
        *(figure.draw(canvas) for canvas in canvases),
        tag("details", tag("summary", "Data"), _table(figure.data)),
    )


def _table(table: ReportTable) -> Markup:
    role = _roles(table)
    head = tag(
        "tr",
        *(
            tag("th", one, scope="col", role=role.get("columnheader"), class_=_kind(table, one))
            for one in table.columns
        ),
        role=role.get("row"),
    )
    body = [_row(table, row, role) for row in table.rows]
    # A scrolling region must be reachable by keyboard.
    return joined(
        tag(
            "div",
            tag(
                "table",
                tag("caption", tag("span", table.caption)),
                tag("thead", head, role=role.get("rowgroup")),
                tag("tbody", *body, role=role.get("rowgroup")),
                role=role.get("table"),
                class_="stacked" if role else None,
            ),
            class_="scroll",
            tabindex="0",
            role="region",
            aria_label=table.caption,
        ),
        tag(
            "p",
            f"… {table.after}" if table.after.startswith("and ") else table.after,
            class_="after",
        )
        if table.after
        else Markup(""),
    )


def _row(table: ReportTable, row: list[str], role: Mapping[str, str]) -> Markup:
    cells = (
        tag(
            "td",
            cell,
            role=role.get("cell"),
            class_=_kind(table, column) or "words",
            data_label=column if role else None,
        )
        for column, cell in zip(table.columns[1:], row[1:], strict=True)
    )
    first = tag("th", row[0], scope="row", role=role.get("rowheader"))
    return tag("tr", first, *cells, role=role.get("row"))


def _roles(table: ReportTable) -> Mapping[str, str]:
    """Return the roles of a table with sentences: on a phone, its rows are blocks of lines, and
    only roles keep it a table. Any other table needs none."""
    words = [at for at, one in enumerate(table.columns) if at and one not in table.numbers]
    has_sentences = any(len(row[at]) > _SENTENCE_CHARS for row in table.rows for at in words)
    return {one: one for one in _ROLES} if has_sentences else {}


def _kind(table: ReportTable, column: str) -> str | None:
    return "number" if column in table.numbers else None
