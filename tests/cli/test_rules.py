"""`waypost rules`."""

from tests.cli.conftest import CommandLine
from tests.cli.directories import fill

SPY = ("agent.spy", "agent.vault.>")
RULE = {"from": "agent.spy", "to": "agent.vault.>", "action": "deny", "priority": 0}


def test_without_rules_everything_is_allowed(waypost: CommandLine) -> None:
    fill(waypost.data)
    assert waypost("rules", "list").stdout == "0 rules; messages that match none are allowed.\n"


def test_a_rule_is_added_replaced_and_removed(waypost: CommandLine) -> None:
    fill(waypost.data)
    assert waypost.json("rules", "add", "deny", *SPY)["rules"] == [RULE]
    changed = waypost.json("rules", "add", "allow", *SPY)["rules"]
    assert changed == [{**RULE, "action": "allow"}]
    assert waypost.json("rules", "list")["rules"] == changed
    assert waypost.json("rules", "remove", *SPY)["rules"] == []


def test_rules_of_one_pair_are_removed_by_priority_or_together(waypost: CommandLine) -> None:
    fill(waypost.data)
    for action, priority in (("deny", "7"), ("allow", "-7"), ("deny", "0")):
        waypost("rules", "add", action, *SPY, "--priority", priority)
    kept = waypost.json("rules", "remove", *SPY, "--priority", "7")["rules"]
    assert [(one["action"], one["priority"]) for one in kept] == [("deny", 0), ("allow", -7)]
    again = waypost("rules", "remove", *SPY, "--priority", "7", exits=1)
    assert "no rule from agent.spy to agent.vault.> with priority 7" in again.stderr
    assert waypost.json("rules", "remove", *SPY)["rules"] == []


def test_a_rule_applies_to_the_next_message(waypost: CommandLine) -> None:
    fill(waypost.data)
    waypost("rules", "add", "deny", "agent.spy", ">")
    rejected = waypost("send", "agent.a", "1", "--sender", "agent.spy", exits=3)
    assert "access_denied" in rejected.stdout + rejected.stderr


def test_an_unknown_rule_cannot_be_removed(waypost: CommandLine) -> None:
    fill(waypost.data)
    assert "no rule from agent.spy" in waypost("rules", "remove", *SPY, exits=1).stderr


def test_an_invalid_pattern_is_rejected(waypost: CommandLine) -> None:
    fill(waypost.data)
    assert "invalid access rule" in waypost("rules", "add", "deny", "a..b", ">", exits=2).stderr


def test_a_broken_file_is_reported_and_not_overwritten(waypost: CommandLine) -> None:
    fill(waypost.data)
    file = waypost.data / "access-rules.json"
    file.write_text("[")
    assert "every publish is denied" in waypost("rules", "list", exits=1).stderr
    assert "repair or delete it" in waypost("rules", "add", "deny", *SPY, exits=1).stderr
    assert file.read_text() == "["
