"""The figures of several runs: medians, spreads and ratios."""

import pytest

from bench import series


def test_a_ratio_is_taken_run_by_run() -> None:
    assert series.ratio([10, 30, 40], [10, 15, 80]) == [1.0, 2.0, 0.5]


def test_runs_that_do_not_belong_together_have_no_ratio() -> None:
    with pytest.raises(ValueError, match="shorter"):
        series.ratio([1.0, 2.0], [1.0])


def test_a_rate_is_shown_with_half_its_spread() -> None:
    assert series.rate_text([900, 1000, 1100]) == "1,000 ±10%"


def test_a_ratio_is_shown_with_its_lowest_and_highest() -> None:
    assert series.ratio_text([1.1, 1.0, 1.2]) == "1.10 (1.00–1.20)"
    assert series.ratio_text([1.1]) == "1.10"


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert series.percentile([5.0], 99) == 5.0
    assert series.percentile(list(range(1, 102)), 50) == 51


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.0123, "0.0123"), (1.234, "1.23"), (12.34, "12.3"), (1234.5, "1,234")],
)
def test_numbers_have_about_three_digits(value: float, text: str) -> None:
    assert series.number_text(value) == text
