"""docs/reference/coverage.md claims for each requirement only what a test shows a user."""

import re
from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest

from tests.architecture.test_docs import NAMED_TEST, names_a_test
from tests.docs.ways_in import ROOT, reached_by
from tests.e2e.test_readme import read

PAGE = "docs/reference/coverage.md"
STATUSES = ("works", "in part", "by design")
ROW = re.compile(r"^\| (\d\.\d+) \| (.+?) \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
DEVIATION = re.compile(r"^\| (D\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
MISSING = re.compile(r"^\| ([\d., ]+) \| (.+?) \|$", re.MULTILINE)
COUNTS = re.compile(
    r"Of (\d+) requirements, (\d+) work, (\d+) hold in part, (\d+) differ by design"
)
NAMED_DEVIATION = re.compile(r"\*\*(D\d+)\*\*")


class Row(msgspec.Struct):
    """A requirement: its number and text, its status, where a user reaches it, and its tests."""

    number: str
    asked: str
    status: str
    where: str
    proof: str

    @property
    def tests(self) -> list[str]:
        return NAMED_TEST.findall(self.proof)

    @property
    def deviations(self) -> list[str]:
        return NAMED_DEVIATION.findall(self.asked)


ROWS = [Row(*found) for found in ROW.findall(read(PAGE))]


def report(problem: str, places: Iterable[str]) -> None:
    found = list(places)
    if found:
        pytest.fail("\n  ".join([f"{PAGE}: {problem}:", *found]), pytrace=False)


def test_every_requirement_has_a_number_and_there_are_no_gaps() -> None:
    numbers = Counter(row.number.partition(".")[0] for row in ROWS)
    assert set(numbers) == {"0", "1", "2", "3", "4"}
    wanted = [f"{one}.{n}" for one, count in sorted(numbers.items()) for n in range(1, count + 1)]
    assert [row.number for row in ROWS] == wanted
    last = re.findall(r"\| \d\.1 to (\d\.\d+) \|", read(PAGE))
    assert last == [f"{one}.{count}" for one, count in sorted(numbers.items())]


def test_every_requirement_names_a_test_that_exists() -> None:
    report(
        "tests that do not exist",
        (
            f"{row.number}: {test or 'no test'}"
            for row in ROWS
            for test in row.tests or [""]
            if "::" not in test or not names_a_test(test)
        ),
    )


def test_every_named_test_goes_the_way_of_a_user() -> None:
    """See `tests/docs/ways_in.py` for what that is."""
    problems = []
    for row in ROWS:
        for test in row.tests:
            file, _, name = test.partition("::")
            reached = reached_by(ROOT / file, name)
            if reached.inner or not reached.public:
                inner = ", ".join(sorted(reached.inner)) or "nothing of Waypost"
                problems.append(f"{row.number}: {test} reaches {inner}")
    report("tests that do not go through a public way", problems)


def test_the_counts_at_the_top_are_those_of_the_rows() -> None:
    counted = Counter(row.status for row in ROWS)
    report("unknown status", (f"{one}" for one in counted if one not in STATUSES))
    expected = (len(ROWS), *(counted[status] for status in STATUSES))
    found = COUNTS.search(re.sub(r"\s+", " ", read(PAGE)))
    assert found is not None, f"{PAGE} has no counts; they are {expected}"
    assert tuple(map(int, found.groups())) == expected


def test_a_requirement_that_works_as_specified_names_no_deviation_and_others_do() -> None:
    report(
        "a status that its deviations contradict",
        (
            f"{row.number}: {row.status}, {row.deviations}"
            for row in ROWS
            if (row.status == "works" and row.deviations)
            or (row.status == "by design" and not row.deviations)
        ),
    )


def test_what_is_missing_is_listed_for_every_requirement_that_holds_in_part() -> None:
    _, _, section = read(PAGE).partition("\n## In part\n")
    table, _, _ = section.partition("\n## ")
    listed = [number for numbers, _ in MISSING.findall(table) for number in numbers.split(", ")]
    assert sorted(listed) == sorted(row.number for row in ROWS if row.status == "in part")


def test_every_deviation_is_explained_and_belongs_to_a_requirement() -> None:
    explained = [name for name, *_ in DEVIATION.findall(read(PAGE))]
    assert explained == [f"D{number}" for number in range(1, len(explained) + 1)]
    assert {name for row in ROWS for name in row.deviations} == set(explained)
