"""The page: complete, accessible, and safe from text that agents wrote."""

import html
import re
from html.parser import HTMLParser

import msgspec
import pytest

from tests.pipeline.reports.sample_data import sample_report
from tests.pipeline.reports.small_lake import HOSTILE
from waypost.pipeline.reports.data import (
    AgentConnections,
    AnomalySummary,
    BreakerSummary,
    ConnectionSummary,
    DeadLetterSummary,
    Latency,
    Period,
    Pressure,
    Rejections,
    ReportData,
    Scope,
    SenderSummary,
    Traffic,
)
from waypost.pipeline.reports.page import render_page
from waypost.pipeline.reports.sections import all_sections
from waypost.pipeline.reports.sections.findings import what_to_look_at

ORDER = [
    "full inbox",
    "breaker",
    "rejected sender",
    "loop",
    "flood",
    "one way",
    "pressure",
    "old messages",
    "dead letters",
    "rejections",
]

VOID = {"meta", "link"}


class Outline(HTMLParser):
    """The elements of a page; fails on an end tag without a start tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def report() -> ReportData:
    return sample_report()


@pytest.fixture(scope="module")
def page(report: ReportData) -> str:
    return render_page(report)


def quiet_report() -> ReportData:
    """A period without events."""
    return ReportData(
        scope=Scope(relays=["north"]),
        period=Period(0, 60_000, 60_000, 60_000),
        traffic=Traffic(),
        rejections=Rejections(),
        latency=Latency(),
        pressure=Pressure(warning_at=0.8),
        tiers=[],
        senders=SenderSummary(),
        breakers=BreakerSummary(),
        dead_letters=DeadLetterSummary(),
        anomalies=AnomalySummary(),
        connections=ConnectionSummary(),
    )


def hostile(value: object) -> object:
    """Return `value` with every text replaced by a hostile one."""
    match value:
        case str():
            return HOSTILE
        case list():
            return [hostile(one) for one in value]
        case dict():
            return {key: hostile(one) for key, one in value.items()}
    return value


def test_every_section_has_a_heading_and_a_link_to_it(report: ReportData, page: str) -> None:
    outline = Outline(page)
    linked = {one["href"] for one in outline.all("a")}
    for section in all_sections(report):
        assert f"#{section.anchor}" in linked
        assert any(one.get("id") == section.anchor for one in outline.all("section"))
        assert f">{section.title}</h2>" in page


def test_every_element_is_closed_and_every_id_unique(page: str) -> None:
    outline = Outline(page)
    assert outline.open == []
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_every_chart_has_a_title_a_description_and_its_data(report: ReportData, page: str) -> None:
    outline = Outline(page)
    charts = [one for one in outline.all("svg") if one.get("role") == "img"]
    figures = sum(len(section.figures) for section in all_sections(report))
    ids = {attributes.get("id") for _, attributes in outline.elements}
    assert len(charts) == 2 * figures  # one for desktops, one for phones
    for chart in charts:
        assert set((chart["aria-labelledby"] or "").split()) <= ids
    assert len(outline.all("details")) == figures


def test_every_table_has_a_caption_and_can_be_reached_by_keyboard(page: str) -> None:
    outline = Outline(page)
    assert len(outline.all("caption")) == len(outline.all("table"))
    regions = [one for one in outline.all("div") if one.get("role") == "region"]
    assert len(regions) == len(outline.all("table"))
    assert all(one["tabindex"] == "0" for one in regions)


def test_rows_with_sentences_are_blocks_on_a_phone_and_still_a_table(page: str) -> None:
    anomalies = page.split('id="anomalies"')[1].split("</section>", maxsplit=1)[0]
    assert '<table role="table" class="stacked">' in anomalies
    assert '<th scope="row" role="rowheader">' in anomalies
    assert 'role="cell" class="words" data-label="What happened">' in anomalies
    breakers = page.split('id="breakers"')[1].split("</section>", maxsplit=1)[0]
    assert "stacked" not in breakers  # numbers fit beside each other


def test_text_from_agents_never_becomes_markup(report: ReportData) -> None:
    hostile_report = msgspec.convert(hostile(msgspec.to_builtins(report)), ReportData)
    outline = Outline(render_page(hostile_report))
    assert outline.all("script") == []
    assert outline.open == []
    assert {name for name, _ in outline.elements} == {
        name for name, _ in Outline(render_page(report)).elements
    }


def test_text_from_agents_stays_readable(report: ReportData) -> None:
    page = render_page(msgspec.convert(hostile(msgspec.to_builtins(report)), ReportData))
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;so&quot; on\\x1b[31m" in page


def test_the_page_needs_no_network_and_no_script(page: str) -> None:
    assert re.findall(r"(?:https?:)?//[a-z]", page) == []
    assert "<script" not in page
    assert re.findall(r"url\((?!#)", page) == []
    assert "default-src 'none'" in page


def test_colours_exist_for_light_dark_and_paper(page: str) -> None:
    style = page[page.index("<style>") : page.index("</style>")]
    light, dark = style.split("@media screen and (prefers-color-scheme: dark)")
    dark = dark[: dark.index("\n}\n")]
    variables = set(re.findall(r"(--[\w-]+):", light))
    assert variables == set(re.findall(r"(--[\w-]+):", dark))
    assert set(re.findall(r"var\((--[\w-]+)\)", style)) == variables
    assert "@media print" in style


def test_charts_use_classes_of_the_style_sheet_and_no_colours_of_their_own(page: str) -> None:
    style = page[page.index("<style>") : page.index("</style>")]
    drawn = "".join(re.findall(r'<svg class="(?:wide|narrow)".*?</svg>', page, re.DOTALL))
    used = {one for several in re.findall(r'class="([^"]+)"', drawn) for one in several.split()}
    assert {one for one in used if f".{one}" not in style} <= {"heat"}
    assert re.findall(r'(?:fill|stroke|style)="', drawn) == []


def test_the_takeaways_follow_from_the_data(report: ReportData, page: str) -> None:
    assert "The busiest minute was 12:05 on 4 Jan with 412 publishes." in page
    assert "5,763 rejections; the most frequent reason was rate limit (93.7%, 1 sender)." in page
    assert "3 inboxes reached the warning level of 80% of the cap." in page
    assert "All times are UTC." in page
    assert "… and 133 more senders" in page


def test_what_to_look_at_names_each_trouble_with_advice_and_a_link_to_its_section(
    report: ReportData, page: str
) -> None:
    found = what_to_look_at(report)
    kinds = [one.kind for one in found]
    assert kinds == sorted(kinds, key=ORDER.index)
    assert set(kinds) == set(ORDER)
    for one in found:
        assert f'<a href="#{one.anchor}">{one.kind}</a>' in page
        assert f'<section id="{one.anchor}"' in page
        assert html.escape(one.text) in page
        assert html.escape(one.advice) in page


def test_a_quiet_period_has_sentences_and_no_charts() -> None:
    page = render_page(quiet_report())
    assert "Nothing needs attention in this period." in page
    assert 'role="img"' not in page
    assert page.count('class="takeaway"') == len(all_sections(quiet_report()))
    assert "Nothing was rejected in this period." in page


def test_subjects_are_shown_with_their_relay_only_if_there_are_several(report: ReportData) -> None:
    assert "agent.planner @ north" not in render_page(report)
    scope = msgspec.structs.replace(report.scope, relays=["north", "south"])
    assert "agent.planner @ north" in render_page(msgspec.structs.replace(report, scope=scope))


def test_a_connection_that_never_ended_has_no_duration(report: ReportData) -> None:
    agents = [AgentConnections("north", "agent.stays", connections=1, connected_ms=0.0, open=1)]
    connections = msgspec.structs.replace(report.connections, agents=agents)
    page = render_page(msgspec.structs.replace(report, connections=connections))
    row = page[page.index("agent.stays") :]
    assert re.findall(r"<td[^>]*>(.*?)</td>", row)[:3] == ["1", "–", "1"]


def test_the_same_data_gives_the_same_page(report: ReportData, page: str) -> None:
    assert render_page(report) == page
