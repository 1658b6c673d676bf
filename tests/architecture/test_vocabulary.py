"""One word for one idea: what docs/glossary.md says to avoid is found nowhere a person reads.

Identifiers, docstrings, comments, texts and pages are searched. Code in backticks and in fenced
blocks is not prose; names in it are checked as identifiers where they are defined.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import (
    FOLDERS,
    ROOT,
    identifiers_in,
    name_of,
    python_files,
    report,
    tree_of,
)

GLOSSARY = ROOT / "docs" / "glossary.md"
HEADING = "## Words to avoid"
WORDS_OF_A_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
CODE_IN_PROSE = re.compile(r"```.*?```|~~~.*?~~~|`[^`]*`|<[^>]*>|\]\([^)]*\)", re.DOTALL)
PAGES_LEFT_OUT = {"docs/glossary.md"}  # it has to name the words
TEXT_IN_SCRIPT = re.compile(r"\"[^\"]* [^\"]*\"|`[^`]* [^`]*`|: \"[a-z]+\"|>[^<]+<")
KIND_AS_TEXT = re.compile(r"\b(?:accepted|acked)\b(?!:)")
"""Kinds of the journal: people read that a message is stored, or acknowledged."""
NEVER_IN_IDENTIFIERS = {"told", "loud", "settled", "goal", "goals"}


def avoided_phrases() -> list[str]:
    """Return the second column of the glossary's table without what is in italics."""
    text = GLOSSARY.read_text(encoding="utf-8")
    table = text.partition(HEADING)[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("|")][2:]
    phrases = [phrase.strip() for row in rows for phrase in row[1].split(",")]
    return [phrase for phrase in phrases if phrase and not phrase.startswith("*")]


def test_the_glossary_lists_words_to_avoid() -> None:
    assert {"refuse", "whoever"} <= set(avoided_phrases())


def test_identifiers_use_the_words_of_the_field() -> None:
    report(
        [
            f"{name_of(path)}:{line} {identifier}"
            for path in python_files(*FOLDERS)
            for line, identifier in identifiers_in(path)
            if is_avoided_identifier(identifier)
        ]
    )


@pytest.mark.parametrize(
    ("identifier", "avoided"),
    [
        ("is_refused", True),
        ("RefusedDropIn", True),
        ("told_budget", True),
        ("letter", True),
        ("all_letters", True),
        ("dead_letters", False),
        ("DeadLetterGroup", False),
        ("unsettled_cloud", False),
    ],
)
def test_an_avoided_word_is_found_as_a_word_of_its_own(identifier: str, avoided: bool) -> None:
    assert is_avoided_identifier(identifier) == avoided


def test_docstrings_comments_and_texts_use_the_words_of_the_field() -> None:
    report(
        [
            f"{name_of(path)}:{line} '{found}'"
            for path in python_files("src", "bench", "examples")
            for line, prose in prose_in(path)
            for found in avoided_in(prose)
        ]
    )


def test_pages_use_the_words_of_the_field() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    report(
        [
            f"{name_of(page)}:{number} '{found}'"
            for page in sorted(pages)
            if name_of(page) not in PAGES_LEFT_OUT
            for number, line in enumerate(prose_of_page(page).splitlines(), start=1)
            for found in avoided_in(line)
        ]
    )


def test_texts_of_the_dashboard_use_the_words_of_the_field() -> None:
    scripts = sorted((ROOT / "src" / "waypost" / "server" / "dashboard").rglob("*.js"))
    report(
        [
            f"{name_of(path)}:{number} '{found}'"
            for path in scripts
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
            for text in TEXT_IN_SCRIPT.findall(line)
            for found in [*avoided_in(text), *KIND_AS_TEXT.findall(text)]
        ]
    )


def is_avoided_identifier(identifier: str) -> bool:
    """Return whether a name holds a word to avoid."""
    words = [word.lower() for word in WORDS_OF_A_NAME.findall(identifier)]
    return any(
        word.startswith("refus")
        or word in NEVER_IN_IDENTIFIERS
        or (word in {"letter", "letters"} and words[max(0, at - 1)] != "dead")
        for at, word in enumerate(words)
    )


def avoided_in(text: str) -> Iterator[str]:
    """Yield the phrases of the glossary that stand in a text."""
    prose = CODE_IN_PROSE.sub(" ", text)
    for found in AVOIDED.finditer(prose):
        yield found.group()


def prose_in(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of everything in a file that is not code: strings and comments."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    text = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def prose_of_page(page: Path) -> str:
    """Return a page with its code blanked out, line by line, so that numbers stay right."""
    text = page.read_text(encoding="utf-8")
    return CODE_IN_PROSE.sub(lambda code: re.sub(r"[^\n]", " ", code.group()), text)


AVOIDED = re.compile(
    r"\b(" + "|".join(re.escape(one) for one in avoided_phrases()) + r")\b", re.IGNORECASE
)
