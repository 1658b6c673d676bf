"""The report in a terminal: the same sentences and tables, and nothing that moves the cursor."""

import io

import msgspec
from rich.console import Console

from tests.pipeline.reports.sample_data import sample_facts
from tests.pipeline.reports.test_page import hostile, quiet_facts
from waypost.pipeline.reports.data import Facts
from waypost.pipeline.reports.sections.every import every_section
from waypost.pipeline.reports.sections.headline import headline
from waypost.pipeline.reports.terminal import render


def printed(facts: Facts, width: int = 200) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False)
    for piece in render(facts):
        console.print(piece)
    return out.getvalue()


def test_every_section_is_told_with_its_takeaway() -> None:
    facts = sample_facts()
    told = " ".join(printed(facts, 400).split())
    assert headline(facts) in told
    for section in every_section(facts):
        assert section.title in told
        assert section.takeaway in told


def test_tables_hold_the_numbers_of_the_page() -> None:
    told = printed(sample_facts())
    assert "agent.sender-0" in told
    assert "and 133 more senders" in told
    assert "5,400" in told


def test_text_from_agents_is_shown_and_not_obeyed() -> None:
    told = printed(msgspec.convert(hostile(msgspec.to_builtins(sample_facts())), Facts))
    assert "\x1b" not in told
    assert "\\x1b[31m" in told


def test_a_quiet_period_is_told_in_words() -> None:
    told = printed(quiet_facts())
    assert "Nothing stands out in this period." in told
    assert "No breaker opened in this period." in told


def test_it_fits_a_narrow_terminal() -> None:
    assert max(map(len, printed(sample_facts(), 80).splitlines())) <= 80
