"""Formatting of numbers, times and texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.pipeline.reports.formatting import (
    compact,
    duration,
    instant,
    join_names,
    number,
    plural,
    share,
    shorten,
    size,
    step,
)
from waypost.pipeline.reports.html import Markup, escaped, joined, tag
from waypost.wire.printable import printable


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (0.25, "0.25 ms"),
        (350, "350 ms"),
        (999.7, "1 s"),
        (1_240, "1.24 s"),
        (59_980, "1 min"),
        (185_000, "3 min 5 s"),
        (3_600_000, "1 h"),
        (7_440_000, "2 h 4 min"),
        (47 * 3_600_000, "47 h"),
        (74 * 3_600_000, "3 d 2 h"),
    ],
)
def test_a_duration_has_a_fitting_unit(ms: float, words: str) -> None:
    assert duration(ms) == words


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [
        (0, 0, "0%"),
        (0, 10, "0%"),
        (1, 100_000, "under 0.1%"),
        (99_999, 100_000, "over 99.9%"),
        (1, 30, "3.3%"),
        (1, 3, "33.3%"),
        (1, 2, "50.0%"),
        (5, 5, "100%"),
    ],
)
def test_a_share_is_0_or_100_percent_only_if_exact(part: int, whole: int, words: str) -> None:
    assert share(part, whole) == words


def test_counts_sizes_and_times() -> None:
    assert (number(1_234_567), number(0.25), number(1_234.5)) == ("1,234,567", "0.25", "1,234")
    assert (compact(950), compact(12_500), compact(3e6)) == ("950", "12.5k", "3M")
    assert (size(900), size(1_536), size(3 * 2**20)) == ("900 B", "1.5 KiB", "3 MiB")
    assert (plural(1, "inbox", "inboxes"), plural(2_000, "message")) == (
        "1 inbox",
        "2,000 messages",
    )
    assert instant(1_767_449_100_000) == "3 Jan 2026 14:05"
    assert (step(60_000), step(300_000), step(7 * 86_400_000)) == ("minute", "5 minutes", "7 days")
    assert (join_names([]), join_names(["a"]), join_names(["a", "b", "c"])) == (
        "",
        "a",
        "a, b and c",
    )


@given(st.text(), st.integers(4, 40))
def test_a_shortened_text_keeps_both_ends(text: str, most: int) -> None:
    short = shorten(text, most)
    assert len(short) <= most
    assert short == text or (short[0] == text[0] and "…" in short)


@given(st.text())
def test_text_cannot_become_markup(text: str) -> None:
    inside = tag("p", text, title=text)
    assert inside.count("<") == 2
    assert inside.count('"') == 2
    assert printable(text).isprintable() or text == ""


def test_markup_is_not_escaped_twice() -> None:
    assert joined(tag("b", "a & b"), "<") == "<b>a &amp; b</b>&lt;"
    assert escaped(Markup("<i>")) == "<i>"
