"""The report in a terminal: the same sentences and tables, and no control characters."""

import io

import msgspec
from rich.console import Console

from tests.pipeline.reports.sample_data import sample_report
from tests.pipeline.reports.test_page import hostile, quiet_report
from waypost.pipeline.reports.data import ReportData
from waypost.pipeline.reports.sections import all_sections
from waypost.pipeline.reports.sections.headline import headline
from waypost.pipeline.reports.terminal import render


def printed(report: ReportData, width: int = 200) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False)
    for piece in render(report):
        console.print(piece)
    return out.getvalue()


def test_every_section_is_printed_with_its_takeaway() -> None:
    report = sample_report()
    output = " ".join(printed(report, 400).split())
    assert headline(report) in output
    for section in all_sections(report):
        assert section.title in output
        assert section.takeaway in output


def test_tables_hold_the_numbers_of_the_page() -> None:
    output = printed(sample_report())
    assert "agent.sender-0" in output
    assert "and 133 more senders" in output
    assert "5,400" in output


def test_control_characters_from_agents_are_escaped() -> None:
    output = printed(msgspec.convert(hostile(msgspec.to_builtins(sample_report())), ReportData))
    assert "\x1b" not in output
    assert "\\x1b[31m" in output


def test_a_quiet_period_is_described_in_sentences() -> None:
    output = printed(quiet_report())
    assert "Nothing needs attention in this period." in output
    assert "No breaker opened in this period." in output


def test_it_fits_a_narrow_terminal() -> None:
    assert max(map(len, printed(sample_report(), 80).splitlines())) <= 80
