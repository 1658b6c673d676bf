"""The reference says what the command line really prints."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import bury
from tests.cli.served import serving

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "command-line-json.md"

COMMANDS = {
    "send": ("send", "agent.a", "1", "--sender", "agent.b"),
    "inbox": ("inbox", "agent.a"),
    "explain": ("explain", "one"),
    "endpoints": ("endpoints",),
    "stats": ("stats",),
    "dead-letters list": ("dead-letters", "list"),
    "dead-letters list --group": ("dead-letters", "list", "--group"),
    "dead-letters redrive": ("dead-letters", "redrive", "one"),
    "dead-letters purge": ("dead-letters", "purge", "--yes"),
    "config check": ("config", "check"),
    "rules list": ("rules", "add", "deny", "agent.spy", "agent.vault"),
    "verify": ("verify",),
    "rebuild": ("rebuild",),
}


NOT_ON_A_DIRECTORY = {"listen", "request", "keys new"}


def sections() -> dict[str, str]:
    _, *parts = re.split(r"^## ", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(part.split("\n", 1) for part in parts)


def documented(section: str) -> tuple[set[str], set[str]]:
    """Names in the first column of a section's table, and names anywhere in it."""
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    fields = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    return fields, set(re.findall(r"`(\w+)`", section))


def test_every_command_that_prints_facts_is_in_the_reference() -> None:
    assert sections().keys() == COMMANDS.keys() | NOT_ON_A_DIRECTORY


@pytest.mark.parametrize("command", COMMANDS)
def test_the_fields_are_exactly_those_that_are_printed(waypost: CommandLine, command: str) -> None:
    bury(waypost.data, "one", "two")
    printed = waypost.json(*COMMANDS[command])
    fields, mentioned = documented(sections()[command])
    assert fields == set(printed)
    for value in printed.values():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            assert set(value[0]) <= mentioned, f"{set(value[0]) - mentioned} are not explained"


@pytest.mark.process
def test_the_fields_of_what_agents_hear_are_those_that_are_printed(tmp_path: Path) -> None:
    with serving(tmp_path) as relay:
        person = relay.person()
        keys = person.json("keys", "new", "agent.a")
        person.has_keys("agent.b")
        person("send", "agent.a", "1", "--sender", "agent.b")
        heard = person.json("listen", "agent.a", "--count", "1")
        confirmed = person.json("listen", "agent.b", "--seconds", "1")
        request = ("request", "service.nobody", "1", "--sender", "agent.a")
        rejected = person.json(*request, exits=3)
    found = sections()
    assert documented(found["listen"])[0] == set(heard) | set(confirmed)
    assert documented(found["request"])[0] == set(heard)
    assert documented(found["send"])[0] == set(rejected)
    assert documented(found["keys new"])[0] == set(keys)
