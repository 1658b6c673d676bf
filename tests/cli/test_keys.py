"""`waypost keys`: create and show keys without revealing secrets."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.command_tree import CliRunner
from tests.cli.conftest import WIDE
from waypost.cli.app import app
from waypost.cli.commands import keys
from waypost.client.identity import Identity
from waypost.client.sealing import check_card
from waypost.wire.sealing import Card

commands = typer.Typer(cls=app.info.cls)
commands.add_typer(keys.commands, name="keys")


class Keys:
    """Runs `waypost keys` with its own home directory."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *arguments: str, exits: int = 0, key: str = "") -> Any:
        runner = CliRunner(env={**WIDE, "HOME": str(self.home), "WAYPOST_KEY": key})
        result = runner.invoke(commands, ["keys", *arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == exits, f"{result.exit_code}: {result.stdout}{result.stderr}"
        return result


@pytest.fixture
def waypost_keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def private_parts(file: Path) -> list[str]:
    content = json.loads(file.read_text())
    return [content["signing_key"], content["sealing_key"]]


@pytest.mark.parametrize("command", ["new", "show"])
def test_every_command_has_an_example(waypost_keys: Keys, command: str) -> None:
    text = waypost_keys(command, "--help").stdout
    assert f"waypost keys {command}" in text.partition("Example")[2]
    assert "--json" in text
    assert "WAYPOST_KEY" in text


def test_new_keys_are_saved_in_the_home_directory_by_default(waypost_keys: Keys) -> None:
    waypost_keys("new", "agent.web")
    file = waypost_keys.home / ".config" / "waypost" / "agent.web.key"
    assert Identity.load(file).subject == "agent.web"


def test_new_keys_are_saved_to_the_given_file(waypost_keys: Keys, tmp_path: Path) -> None:
    waypost_keys("new", "agent.web", "--out", str(tmp_path / "web.key"))
    assert Identity.load(tmp_path / "web.key").subject == "agent.web"


def test_the_key_file_can_be_set_in_the_environment(waypost_keys: Keys, tmp_path: Path) -> None:
    file = str(tmp_path / "web.key")
    waypost_keys("new", "agent.web", key=file)
    assert "agent.web" in waypost_keys("show", key=file).stdout


def test_only_the_owner_can_read_the_file(waypost_keys: Keys, tmp_path: Path) -> None:
    waypost_keys("new", "agent.web", "--out", str(tmp_path / "web.key"))
    assert stat.S_IMODE((tmp_path / "web.key").stat().st_mode) == 0o600


def test_keys_are_never_overwritten(waypost_keys: Keys, tmp_path: Path) -> None:
    file = tmp_path / "web.key"
    waypost_keys("new", "agent.web", "--out", str(file))
    before = file.read_bytes()
    result = waypost_keys("new", "agent.web", "--out", str(file), exits=1)
    assert "cannot be recovered" in result.stderr
    assert file.read_bytes() == before


@pytest.mark.parametrize("subject", ["agent..web", "agent.*", "_relay", "../../etc/passwd"])
def test_an_invalid_subject_is_a_usage_error(waypost_keys: Keys, subject: str) -> None:
    assert subject[:6] in waypost_keys("new", subject, exits=2).stderr
    assert list(waypost_keys.home.iterdir()) == []


def test_show_prints_a_valid_card(waypost_keys: Keys, tmp_path: Path) -> None:
    file = tmp_path / "web.key"
    made = json.loads(waypost_keys("new", "agent.web", "--out", str(file), "--json").stdout)
    shown = json.loads(waypost_keys("show", str(file), "--json").stdout)
    assert shown == made
    assert shown.pop("file") == str(file)
    assert check_card(Card(**shown)) == shown["sealing_key"]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nothing_private_is_printed(
    waypost_keys: Keys, tmp_path: Path, more: tuple[str, ...]
) -> None:
    file = tmp_path / "web.key"
    printed = waypost_keys("new", "agent.web", "--out", str(file), *more).stdout
    printed += waypost_keys("show", str(file), *more).stdout
    assert Identity.load(file).public_key in printed
    assert not any(secret in printed for secret in private_parts(file))


def test_a_file_that_others_can_read_is_rejected_with_a_fix(
    waypost_keys: Keys, tmp_path: Path
) -> None:
    file = tmp_path / "web.key"
    waypost_keys("new", "agent.web", "--out", str(file))
    file.chmod(0o644)
    assert f"chmod 600 {file}" in waypost_keys("show", str(file), exits=1).stderr


def test_a_missing_file_is_one_sentence(waypost_keys: Keys, tmp_path: Path) -> None:
    result = waypost_keys("show", str(tmp_path / "none.key"), exits=1)
    assert result.stderr == (
        f"waypost: cannot read {tmp_path}/none.key: No such file or directory;"
        " 'waypost keys new SUBJECT' creates keys\n"
    )


def test_keys_are_shown_by_the_name_of_their_agent(waypost_keys: Keys) -> None:
    created = waypost_keys("new", "agent.web").stdout
    assert waypost_keys("show", "agent.web").stdout == created
