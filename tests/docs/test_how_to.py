"""Execute the pages in docs/how-to that need no Spark, and check the commands of all."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from tests.cli.command_tree import command_tree
from tests.docs.page_runner import Reader, masked, matches, pieces
from tests.e2e.test_readme import ROOT, read

FOLLOWED = {
    "protect-an-agent-from-floods": 4,
    "stop-loops": 2,
    "keep-mail-for-offline-agents": 4,
    "wake-an-idle-agent": 1,
    "deploy-behind-tls": 4,
    "back-up-and-restore": 7,
    "run-a-cluster": 14,
    "prove-that-a-journal-is-unchanged": 3,
    "tune-limits-with-a-backtest": 2,
}
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))


@pytest.mark.process
@pytest.mark.parametrize(("name", "least"), FOLLOWED.items())
def test_every_command_on_a_page_works(name: str, least: int, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        assert reader.follow(f"docs/how-to/{name}.md") >= least


def commands() -> Iterator[Any]:
    for page in PAGES:
        for _, language, text, _, _ in pieces(f"docs/how-to/{page.name}"):
            for line in text.replace("\\\n", " ").splitlines() if language == "sh" else ():
                command = line.partition("; ")[0]
                if command.startswith("waypost "):
                    words = shlex.split(command, comments=True)
                    yield pytest.param(words[1:], id=f"{page.name}: {command[:60]}")


@pytest.mark.parametrize("words", list(commands()))
def test_a_command_on_a_page_is_valid(words: list[str]) -> None:
    command: Any = command_tree()
    while isinstance(command, TyperGroup):
        assert words[0] in command.commands
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, list(words))  # raises for unknown arguments


def test_every_page_is_in_the_index() -> None:
    index = read("docs/README.md")
    pages = (page for page in (ROOT / "docs").rglob("*.md") if "decisions/0" not in str(page))
    names = (str(page.relative_to(ROOT / "docs")) for page in pages)
    assert [name for name in names if f"({name})" not in index and name != "README.md"] == []


def test_ids_and_ages_are_not_compared() -> None:
    page = masked("01M7HBQZ3T1XW8JQZT7J9GZK5A  3 s ago\n…\nlast")
    assert matches(page, masked("01M7HC0V6K7PMJ8Q4T3B9X2Z1N 12 s ago\nmore\nmore\nlast"))
    assert not matches(page, masked("01M7HC0V6K7PMJ8Q4T3B9X2Z1N 12 s ago\nlast but one"))
    assert not matches(masked("1 waiting"), masked("2 waiting"))
