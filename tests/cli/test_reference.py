"""The reference lists exactly the fields that the command line prints."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import add_dead_letters
from tests.cli.serve_process import serving

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"

COMMANDS = {
    "send": ("send", "agent.a", "1", "--sender", "agent.b"),
    "inbox": ("inbox", "agent.a"),
    "explain": ("explain", "one"),
    "thread": ("thread", "one"),
    "endpoints": ("endpoints",),
    "stats": ("stats",),
    "scheduled list": ("scheduled", "list"),
    "scheduled cancel": ("scheduled", "cancel", "late"),
    "dead-letters list": ("dead-letters", "list"),
    "dead-letters list --group": ("dead-letters", "list", "--group"),
    "dead-letters redrive": ("dead-letters", "redrive", "one"),
    "dead-letters purge": ("dead-letters", "purge", "--yes"),
    "config check": ("config", "check"),
    "rules list": ("rules", "add", "deny", "agent.spy", "agent.vault"),
    "context list": ("context", "list"),
    "names list": ("names", "list"),
    "breakers list": ("breakers", "list"),
    "verify": ("verify",),
    "rebuild": ("rebuild",),
}


SERVED_ONLY = {
    "listen",
    "listen --exec",
    "ping",
    "request",
    "keys new",
    "keys relay",
    "agents list",
    "webhooks set",
}


def sections() -> dict[str, str]:
    """Return the sections about JSON by command."""
    _, *parts = re.split(r"^##+ ", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    titles = [part.partition("\n")[::2] for part in parts]
    return {
        found[1]: text
        for title, text in titles
        if (found := re.fullmatch(r"JSON of `waypost (.+)`", title))
    }


def documented(section: str) -> tuple[set[str], set[str]]:
    """Return the names in the first column of a section's table, and all names in it."""
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    fields = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    return fields, set(re.findall(r"`(\w+)`", section))


def test_every_command_with_json_output_is_in_the_reference() -> None:
    assert sections().keys() == COMMANDS.keys() | SERVED_ONLY


@pytest.mark.parametrize("command", COMMANDS)
def test_the_documented_fields_are_exactly_the_printed_ones(
    waypost: CommandLine, command: str
) -> None:
    add_dead_letters(waypost.data, "one", "two")
    waypost("send", "agent.a", "1", "--sender", "agent.b", "--delay", "1h", "--id", "late")
    printed = waypost.json(*COMMANDS[command])
    fields, mentioned = documented(sections()[command])
    assert fields == set(printed)
    for value in printed.values():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            assert set(value[0]) <= mentioned, f"{set(value[0]) - mentioned} are not explained"


@pytest.mark.process
def test_the_documented_fields_of_agent_commands_are_the_printed_ones(tmp_path: Path) -> None:
    with serving(tmp_path) as relay:
        user = relay.user()
        relay_key = user.json("keys", "relay", "--data-dir", str(relay.data))
        keys = user.json("keys", "new", "agent.a")
        user.create_keys("agent.b")
        user("send", "agent.a", "1", "--sender", "agent.b")
        received = user.json("listen", "agent.a", "--count", "1")
        confirmed = user.json("listen", "agent.b", "--seconds", "1")
        user("send", "agent.a", "2", "--sender", "agent.b")
        run = user.json("listen", "agent.a", "--exec", "true", "--count", "1")
        request = ("request", "service.absent", "1", "--sender", "agent.a")
        rejected = user.json(*request, exits=3)
        hosts = tmp_path / "hosts.json"
        hosts.write_text('{"webhooks": {"privateHosts": ["127.0.0.1:9"]}}')
        relay.operator()("config", "save", str(hosts))
        webhook = user.json("webhooks", "set", "agent.a", "http://127.0.0.1:9/")
        tested = user.json("webhooks", "test", "agent.a", exits=1)
    found = sections()
    assert documented(found["listen"])[0] == set(received) | set(confirmed)
    assert documented(found["listen --exec"])[0] == set(run)
    assert documented(found["request"])[0] == set(received)
    assert documented(found["send"])[0] == set(rejected)
    assert documented(found["keys new"])[0] == set(keys)
    assert documented(found["keys relay"])[0] == set(relay_key)
    assert documented(found["webhooks set"])[0] == set(webhook)
    assert set(tested) <= documented(found["webhooks set"])[1]
