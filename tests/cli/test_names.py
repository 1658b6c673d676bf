"""`waypost names`, on a data directory and on a served relay."""

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import fill
from tests.cli.serve_process import serving
from tests.harness.small_order_keys import IDENTITY
from waypost.client.identity import Identity

KEY, OTHER = (Identity.new("agent.web").public_key for _ in range(2))
KEY_WITH_A_DASH = "-_oeUr-v4YpkcA8uH8n_A3usgvuTQywbsqEsEyYevcA"


def test_a_name_is_bound_listed_replaced_and_freed(waypost: CommandLine) -> None:
    fill(waypost.data)
    assert waypost("names", "list").stdout == "0 names.\n"
    bound = waypost.json("names", "bind", "agent.web", KEY)
    assert (bound["subject"], bound["public_key"]) == ("agent.web", KEY)
    assert bound["by_operator"] is True
    assert waypost.json("names", "list")["names"] == [bound]
    shown = waypost("names", "list").stdout
    assert KEY in shown
    assert "operator" in shown
    taken = waypost("names", "bind", "agent.web", OTHER, exits=1).stderr
    assert "agent.web belongs to another key" in taken
    waypost("names", "bind", "agent.web", OTHER, "--replace")
    freed = waypost("names", "unbind", "agent.web").stdout
    assert freed == f"agent.web: freed, key {OTHER}\n"
    assert waypost.json("names", "list") == {"names": []}
    assert "bound to no key" in waypost("names", "unbind", "agent.web", exits=1).stderr


def test_a_key_that_starts_with_a_dash_is_a_key_not_an_option(waypost: CommandLine) -> None:
    fill(waypost.data)
    bind = ("names", "bind", "agent.web")
    assert waypost.json(*bind, KEY_WITH_A_DASH)["public_key"] == KEY_WITH_A_DASH
    assert waypost.json(*bind, "--replace", KEY_WITH_A_DASH)["public_key"] == KEY_WITH_A_DASH
    waypost("rules", "add", "allow", "agent.web", "agent.b", "--from-key", KEY_WITH_A_DASH)
    assert KEY_WITH_A_DASH in waypost("rules", "list").stdout


@pytest.mark.parametrize(
    ("subject", "key"),
    [("_relay", KEY), ("agent.*", KEY), ("agent.web", "short"), ("agent.web", IDENTITY)],
    ids=["reserved", "pattern", "short key", "key of small order"],
)
def test_invalid_names_and_keys_are_rejected(waypost: CommandLine, subject: str, key: str) -> None:
    fill(waypost.data)
    waypost("names", "bind", subject, key, exits=2)
    assert waypost.json("names", "list") == {"names": []}


def test_a_directory_without_a_relay_has_no_names(waypost: CommandLine) -> None:
    waypost("names", "list", exits=1)
    waypost("names", "bind", "agent.web", KEY, exits=1)
    assert not waypost.data.exists()


def test_a_rule_names_a_key(waypost: CommandLine) -> None:
    fill(waypost.data)
    rule = ("agent.web", "agent.billing")
    waypost("rules", "add", "allow", *rule, "--from-key", KEY)
    added = waypost.json("rules", "add", "deny", *rule)["rules"]
    assert [one.get("fromKey") for one in added] == [KEY, None]
    assert KEY in waypost("rules", "list").stdout
    rest = waypost.json("rules", "remove", *rule, "--from-key", KEY)["rules"]
    assert [one.get("fromKey") for one in rest] == [None]
    assert "no rule" in waypost("rules", "remove", *rule, "--from-key", OTHER, exits=1).stderr
    invalid = waypost("rules", "add", "deny", *rule, "--from-key", "short", exits=2).stderr
    assert "fromKey" in invalid


@pytest.mark.process
def test_names_of_a_served_relay_are_changed_without_a_stop(tmp_path: Path) -> None:
    with serving(tmp_path) as relay:
        user, operator = relay.user(), relay.operator()
        key = user.json("keys", "new", "agent.web")["public_key"]
        user("inbox", "agent.web")  # binds the name
        [name] = operator.json("names", "list")["names"]
        assert (name["subject"], name["public_key"], name["by_operator"]) == (
            "agent.web",
            key,
            False,
        )
        operator("names", "bind", "agent.web", OTHER, "--replace")
        assert "no longer owns" in user("inbox", "agent.web", exits=1).stderr
        operator("names", "unbind", "agent.web")
        revoked = user("inbox", "agent.web", exits=1).stderr
        assert f"waypost names bind agent.web {key}" in revoked
        operator("names", "bind", "agent.web", key)
        user("inbox", "agent.web")
        in_use = CommandLine(relay.data)("names", "unbind", "agent.web", exits=1).stderr
        assert "in use by another process" in in_use
