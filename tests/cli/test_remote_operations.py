"""Operator commands at a served relay: the same results as from its directory."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import add_dead_letters, fill
from tests.cli.serve_process import ServeProcess, User, serving

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    home = tmp_path_factory.mktemp("served")
    data = home / "data"
    fill(data)
    add_dead_letters(data, "listed-1", "listed-2", to="agent.listed")
    add_dead_letters(data, "back-1", "back-2", to="agent.back")
    add_dead_letters(data, "purged-1", "purged-2", to="agent.purged")
    with serving(home, data=data) as running:
        yield running


@pytest.fixture(scope="module")
def operator(relay: ServeProcess) -> User:
    return relay.operator()


@pytest.fixture
def on_directory(relay: ServeProcess) -> CommandLine:
    """The same commands on the directory, while the relay runs there."""
    return CommandLine(relay.data)


def test_endpoints_equal_those_of_the_directory(operator: User, on_directory: CommandLine) -> None:
    assert operator.json("endpoints") == on_directory.json("endpoints")
    assert operator("endpoints").stdout.splitlines()[0].split()[0] == "Endpoint"


def test_stats_equal_those_of_the_directory_where_reported(
    relay: ServeProcess, operator: User, on_directory: CommandLine
) -> None:
    served, local = operator.json("stats"), on_directory.json("stats")
    assert served.keys() == local.keys()
    same = ("by_status", "total_messages", "storage", "durability", "problems", "seq")
    assert {name: served[name] for name in same} == {name: local[name] for name in same}
    by_subject = {one["subject"]: one for one in served["endpoints"]}
    assert by_subject == {one["subject"]: one for one in local["endpoints"]}
    assert (served["url"], served["data_dir"]) == (relay.url, "")


def test_text_output_shows_connected_agents_and_the_start_of_the_counts(
    relay: ServeProcess, operator: User
) -> None:
    user = relay.user()
    user.create_keys("agent.connected")
    listener = user.start_command("listen", "agent.connected")
    assert listener.stderr is not None
    assert "listening as" in listener.stderr.readline()
    text = operator("stats").stdout
    assert text.splitlines()[0] == relay.url
    assert "served, 1 agent connected" in text
    assert "Since the relay was started" in text
    assert operator.json("stats")["connected"] == ["agent.connected"]
    listener.terminate()
    listener.communicate(timeout=60)


def test_dead_letters_equal_those_of_the_directory(
    operator: User, on_directory: CommandLine
) -> None:
    for more in ((), ("--group",), ("agent.listed",)):
        arguments = ("dead-letters", "list", *more)
        assert operator.json(*arguments) == on_directory.json(*arguments)
    assert "2 dead letters." in operator("dead-letters", "list", "agent.listed").stdout


def test_dead_letters_are_redriven(operator: User) -> None:
    done = operator.json("dead-letters", "redrive", "back-1", "unknown", exits=1)
    assert done == {"redriven": 1, "not_redriven": ["unknown"]}
    rest = operator("dead-letters", "redrive", "--all", "--subject", "agent.back").stdout
    assert rest == "1 dead letter redriven.\n"
    waiting = operator.json("inbox", "agent.back")["messages"]
    assert sorted(one["id"] for one in waiting) == ["back-1", "back-2"]


def test_dead_letters_are_purged_after_confirmation(operator: User) -> None:
    arguments = ("dead-letters", "purge", "--subject", "agent.purged")
    asked = operator(*arguments, stdin="n\n", exits=1)
    assert "Delete 2 dead letters permanently?" in asked.stderr
    assert operator.json(*arguments, "--older-than", "1h", "--yes") == {"purged": 0}
    assert operator.json(*arguments, "--older-than", "0s", "--yes") == {"purged": 2}
    assert operator.json("dead-letters", "list", "agent.purged") == {"dead_letters": []}


def test_the_settings_in_force_are_those_of_a_served_relay(operator: User) -> None:
    shown = operator.json("config", "show")
    assert shown["defaultTtlMs"] == 7 * 24 * 3_600_000
    assert shown["qos"]["enabled"] is True


def test_a_file_is_judged_by_the_relay_and_changes_nothing(operator: User, tmp_path: Path) -> None:
    before = operator.json("config", "show")
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"maxHops": 9}))
    bad.write_text(json.dumps({"maxHops": 0}))
    assert operator.json("config", "check", str(good))["valid"] is True
    judged = operator.json("config", "check", str(bad), exits=1)
    assert (judged["file"], judged["valid"]) == (str(bad), False)
    assert "maxHops" in judged["problem"]
    assert operator.json("config", "show") == before


def test_config_and_rules_are_changed_remotely(operator: User, tmp_path: Path) -> None:
    file = tmp_path / "new.json"
    file.write_text(json.dumps({"maxHops": 0}))
    assert operator.json("config", "save", str(file), exits=1)["valid"] is False
    rule = ("agent.absent", "agent.nowhere")
    added = operator.json("rules", "add", "deny", *rule)["rules"]
    assert [(one["from"], one["to"]) for one in added] == [rule]
    assert operator.json("rules", "list")["rules"] == added
    assert operator.json("rules", "remove", *rule)["rules"] == []
    assert "no rule with these patterns" in operator("rules", "remove", *rule, exits=1).stderr
    for priority in ("1", "2"):
        operator("rules", "add", "deny", *rule, "--priority", priority)
    left = operator.json("rules", "remove", *rule, "--priority", "2")["rules"]
    assert [one["priority"] for one in left] == [1]
    assert operator.json("rules", "remove", *rule)["rules"] == []


def test_the_relays_own_file_is_checked(operator: User) -> None:
    checked = operator.json("config", "check")
    assert (checked["exists"], checked["valid"], checked["problem"]) == (False, True, "")


def test_a_history_equals_that_of_the_directory(operator: User, on_directory: CommandLine) -> None:
    assert operator.json("explain", "small-1") == on_directory.json("explain", "small-1")
    assert operator("explain", "small-1").stdout == on_directory("explain", "small-1").stdout
