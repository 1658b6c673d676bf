"""Sections as one HTML file: no network, no script, nothing but text, tables and drawings."""

from pathlib import Path
from string import Template

from waypost.pipeline.reports.charts.drawing import NARROW, WIDE, Look
from waypost.pipeline.reports.data import Facts
from waypost.pipeline.reports.formatting import day
from waypost.pipeline.reports.html import Markup, joined, tag
from waypost.pipeline.reports.sections.every import every_section
from waypost.pipeline.reports.sections.headline import Finding, findings, headline, tiles
from waypost.pipeline.reports.sections.model import Figure, Section, Table

_TEMPLATE = Path(__file__).with_name("page.html")
_STYLE = Path(__file__).with_name("page.css")


def render_page(facts: Facts) -> str:
    """The whole page. The same facts give the same page."""
    sections = every_section(facts)
    period = period_words(facts)
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=joined(f"Waypost report: {period}"),
        style=_STYLE.read_text(encoding="utf-8").strip(),
        period=joined(period),
        headline=joined(headline(facts)),
        tiles=_tiles(facts) if facts.period else "",
        contents=_contents(sections) if facts.period else "",
        findings=_findings(findings(facts)) if facts.period else "",
        sections="\n".join(_section(one) for one in sections) if facts.period else "",
        colophon=joined(_colophon(facts)),
    )


def period_words(facts: Facts) -> str:
    """The days a report is about."""
    if facts.period is None:
        return "no traffic yet"
    first, last = (
        day(facts.period.first_ms),
        day(max(facts.period.first_ms, facts.period.last_ms - 1)),
    )
    return first if first == last else f"{first} to {last}"


def _colophon(facts: Facts) -> str:
    return (
        f"All times are UTC. Made from version {facts.scope.lake_version} of the lake. Percentiles"
        " of waiting times are values that occurred, right to 1 rank in 10,000."
    )


def _tiles(facts: Facts) -> Markup:
    return tag(
        "dl",
        *(
            tag(
                "div",
                tag("dt", one.name),
                tag("dd", one.value, class_="value"),
                tag("dd", one.note, class_="note"),
            )
            for one in tiles(facts)
        ),
        class_="tiles",
    )


def _contents(sections: list[Section]) -> Markup:
    links = [tag("li", tag("a", one.title, href=f"#{one.anchor}")) for one in sections]
    return tag("nav", tag("ul", *links), aria_label="Sections")


def _findings(found: list[Finding]) -> Markup:
    title = tag("h2", "What to look at", id="look")
    if not found:
        calm = tag("p", "Nothing stands out in this period.")
        return tag("section", title, calm, class_="look calm", aria_labelledby="look")
    entries = [
        tag("li", tag("a", one.kind, href=f"#{one.anchor}"), tag("span", one.words))
        for one in found
    ]
    return tag("section", title, tag("ul", *entries), class_="look", aria_labelledby="look")


def _section(section: Section) -> Markup:
    figures = [
        _figure(one, f"{section.anchor}-{place}") for place, one in enumerate(section.figures)
    ]
    drawn = tag("div", *figures, class_="many") if len(figures) > 1 else joined(*figures)
    # What unfolds below a figure need not be said twice.
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
    looks = [
        Look(f"{name}-{kind}", figure.title, figure.description, width)
        for kind, width in (("wide", WIDE), ("narrow", NARROW))
    ]
    note = tag("small", figure.note) if figure.note else Markup("")
    return tag(
        "figure",
        tag("figcaption", figure.title, note),
        *(figure.draw(look) for look in looks),
        tag("details", tag("summary", "The numbers"), _table(figure.data)),
    )


def _table(table: Table) -> Markup:
    head = tag(
        "tr", *(tag("th", one, scope="col", class_=_kind(table, one)) for one in table.columns)
    )
    body = [
        tag(
            "tr",
            *(
                tag("th", cell, scope="row")
                if not place
                else tag("td", cell, class_=_kind(table, table.columns[place]) or "words")
                for place, cell in enumerate(row)
            ),
        )
        for row in table.rows
    ]
    # A region that scrolls must be reachable by keyboard.
    return joined(
        tag(
            "div",
            tag(
                "table",
                tag("caption", tag("span", table.caption)),
                tag("thead", head),
                tag("tbody", *body),
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


def _kind(table: Table, column: str) -> str | None:
    return "number" if column in table.numbers else None
