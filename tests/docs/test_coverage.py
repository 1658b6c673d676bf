"""docs/reference/coverage.md names existing modules and tests, and its numbers have no gaps."""

import re
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.architecture.test_docs import NAMED_TEST, names_a_test
from tests.e2e.test_readme import ROOT, read

PAGE = "docs/reference/coverage.md"
ROW = re.compile(r"^\| (\d\.\d+) \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
MODULE = re.compile(r"`([\w/]+\.py)`")
DEVIATION = re.compile(r"^\| (D\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)

ROWS = ROW.findall(read(PAGE))


def test_every_requirement_has_a_number_and_there_are_no_gaps() -> None:
    numbers = Counter(number.partition(".")[0] for number, *_ in ROWS)
    assert set(numbers) == {"0", "1", "2", "3", "4"}
    wanted = [f"{one}.{n}" for one, count in sorted(numbers.items()) for n in range(1, count + 1)]
    assert [number for number, *_ in ROWS] == wanted
    last = re.findall(r"\| \d\.1 to (\d\.\d+) \|", read(PAGE))
    assert last == [f"{one}.{count}" for one, count in sorted(numbers.items())]


def test_every_requirement_names_modules_that_exist() -> None:
    report(
        f"{number}: {module or 'no module'}"
        for number, _, modules, _ in ROWS
        for module in MODULE.findall(modules) or [""]
        if not (ROOT / "src" / "waypost" / module).is_file()
    )


def test_every_requirement_names_tests_that_exist() -> None:
    report(
        f"{number}: {test or 'no test'}"
        for number, *_, proof in ROWS
        for test in NAMED_TEST.findall(proof) or [""]
        if "::" not in test or not names_a_test(test)
    )


def report(missing: Iterable[str]) -> None:
    found = list(missing)
    if found:
        pytest.fail("\n  ".join([f"{PAGE} names what does not exist:", *found]), pytrace=False)


def test_every_deviation_is_explained_and_belongs_to_a_requirement() -> None:
    explained = [name for name, *_ in DEVIATION.findall(read(PAGE))]
    assert explained == [f"D{number}" for number in range(1, len(explained) + 1)]
    meant = {name for _, asked, *_ in ROWS for name in re.findall(r"\*\*(D\d+)\*\*", asked)}
    assert meant == set(explained)
