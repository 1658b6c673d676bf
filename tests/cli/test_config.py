"""`waypost config`."""

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import fill
from waypost import Settings
from waypost.policy.settings import merge_settings, to_config_document


def test_without_a_file_the_defaults_apply(waypost: CommandLine) -> None:
    fill(waypost.data)
    assert "the defaults apply" in waypost("config", "check").stdout
    check = waypost.json("config", "check")
    assert (check["exists"], check["valid"], check["problem"]) == (False, True, "")


def test_a_valid_file_is_reported_as_valid(waypost: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "new.json"
    file.write_text('{"maxHops": 3}')
    assert "is valid" in waypost("config", "check", str(file)).stdout
    assert waypost.json("config", "check", str(file))["file"] == str(file)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not JSON"),
        ('{"maxHops": 0}', "maxHops"),
        ('{"maxHop": 3}', "unknown key 'maxHop'; did you mean 'maxHops'?"),
        ('{"qos": {"tier": {}}}', "unknown key 'qos.tier'; did you mean 'qos.tier1'?"),
        ('{"rateLimit": {}}', "did you mean 'reliability.rateLimit'?"),
        ('{"storage": "tape"}', "storage"),
    ],
)
def test_an_invalid_file_is_named_with_its_problem_and_exits_with_1(
    waypost: CommandLine, content: str, problem: str
) -> None:
    fill(waypost.data)
    (waypost.data / "config.json").write_text(content)
    text = waypost("config", "check", exits=1).stdout
    assert "config.json is invalid" in text
    assert problem in text
    check = waypost.json("config", "check", exits=1)
    assert check["valid"] is False
    assert problem in check["problem"]


def test_settings_that_cannot_work_as_intended_are_noted(waypost: CommandLine) -> None:
    fill(waypost.data)
    (waypost.data / "config.json").write_text('{"leaseTimeoutMs": 7200000}')
    assert "note: leaseTimeoutMs is above" in waypost("config", "check").stdout
    [note] = waypost.json("config", "check")["notes"]
    assert "leaseTimeoutMs" in note


def test_unlimited_tiers_are_valid_and_cause_no_note(waypost: CommandLine) -> None:
    fill(waypost.data)
    off = '{"maxEnvelopes": 18446744073709551615, "maxBytes": 18446744073709551615}'
    config = f'{{"qos": {{"enabled": true, "tier1": {off}, "tier2": {off}, "tier3": {off}}}}}'
    (waypost.data / "config.json").write_text(config)
    check = waypost.json("config", "check")
    assert (check["valid"], check["notes"]) == (True, [])
    assert waypost.json("config", "show")["qos"]["tier1"]["maxBytes"] == 2**53


def test_a_named_file_must_exist(waypost: CommandLine, tmp_path: Path) -> None:
    result = waypost("config", "check", str(tmp_path / "no.json"), exits=2)
    assert "does not exist" in result.stderr


def test_a_file_that_is_a_directory_is_invalid(waypost: CommandLine, tmp_path: Path) -> None:
    assert "cannot be read" in waypost("config", "check", str(tmp_path), exits=1).stdout


def test_the_settings_shown_are_a_config_that_gives_the_same_settings(
    waypost: CommandLine,
) -> None:
    fill(waypost.data)
    (waypost.data / "config.json").write_text(
        '{"maxHops": 3, "reliability": {"rateLimit": {"maxPerWindow": 7}}}'
    )
    shown = waypost.json("config", "show")
    assert shown["maxHops"] == 3
    assert shown["reliability"]["rateLimit"]["maxPerWindow"] == 7
    again = merge_settings(Settings(), waypost("config", "show").stdout.encode())
    assert to_config_document(again) == shown


def test_an_invalid_file_is_reported_and_the_defaults_are_shown(waypost: CommandLine) -> None:
    fill(waypost.data)
    (waypost.data / "config.json").write_text('{"maxHops": 0}')
    result = waypost("config", "show", exits=1)
    assert "config.json is ignored" in result.stderr
    assert waypost.json("config", "show", exits=1)["maxHops"] == Settings().max_hops


def test_storage_is_shown_as_the_directory_has_it(waypost: CommandLine) -> None:
    fill(waypost.data, storage="journal")
    assert waypost.json("config", "show")["storage"] == "journal"
    (waypost.data / "config.json").write_text('{"storage": "maildir"}')
    assert waypost.json("config", "show")["storage"] == "maildir"


def test_a_valid_file_is_saved_as_config_json(waypost: CommandLine, tmp_path: Path) -> None:
    fill(waypost.data)
    file = tmp_path / "new.json"
    file.write_text('{"maxHops": 3}')
    assert "as the relay's config.json." in waypost("config", "save", str(file)).stdout
    assert waypost.json("config", "show")["maxHops"] == 3


def test_an_invalid_file_is_not_saved(waypost: CommandLine, tmp_path: Path) -> None:
    fill(waypost.data)
    (waypost.data / "config.json").write_text('{"maxHops": 4}')
    file = tmp_path / "new.json"
    file.write_text('{"maxHops": 0}')
    assert "maxHops" in waypost("config", "save", str(file), exits=1).stdout
    assert (waypost.data / "config.json").read_text() == '{"maxHops": 4}'
