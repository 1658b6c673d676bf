"""The relay of a command: a data directory or a served relay."""

from pathlib import Path

import pytest

from tests.cli.conftest import WIDE
from tests.cli.serve_process import User

OFFLINE_URL = "http://127.0.0.1:9"


def user(tmp_path: Path, **environment: str) -> User:
    return User("", tmp_path, **{**WIDE, **environment})


def test_a_directory_and_a_url_together_are_an_error(tmp_path: Path) -> None:
    given = ("--data-dir", str(tmp_path), "--url", OFFLINE_URL)
    output = user(tmp_path)("endpoints", *given, exits=2).stderr
    assert "--data-dir and --url are both given" in output
    assert str(tmp_path) in output
    assert OFFLINE_URL in output


def test_both_variables_together_are_an_error(tmp_path: Path) -> None:
    both = user(tmp_path, WAYPOST_DATA_DIR=str(tmp_path), WAYPOST_URL=OFFLINE_URL)
    assert "WAYPOST_DATA_DIR and WAYPOST_URL" in both("endpoints", exits=2).stderr


def test_an_option_takes_precedence_over_the_environment(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    to_directory = user(tmp_path, WAYPOST_URL=OFFLINE_URL)
    send = ("send", "agent.a", "1", "--sender", "agent.b", "--register")
    to_directory(*send, "--data-dir", data)
    to_url = user(tmp_path, WAYPOST_DATA_DIR=data)
    assert OFFLINE_URL in to_url("send", "agent.a", "1", "--url", OFFLINE_URL, exits=1).stderr


@pytest.mark.parametrize("command", ["verify", "rebuild"])
def test_commands_on_files_reject_a_url(tmp_path: Path, command: str) -> None:
    for result in (
        user(tmp_path)(command, "--url", OFFLINE_URL, exits=2),
        user(tmp_path, WAYPOST_URL=OFFLINE_URL)(command, exits=2),
    ):
        assert f"'waypost {command}' works on local files" in result.stderr
        assert "--data-dir" in result.stderr


def test_commands_on_files_ignore_a_url_variable_if_a_directory_is_given(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    user(tmp_path)("send", "agent.a", "1", "--sender", "agent.b", "--register", "--data-dir", data)
    assert user(tmp_path, WAYPOST_URL=OFFLINE_URL).json("verify", "--data-dir", data)["ok"]
    assert user(tmp_path, WAYPOST_URL=OFFLINE_URL, WAYPOST_DATA_DIR=data).json("verify")["ok"]


def test_on_a_directory_send_needs_a_sender_and_cannot_wait(tmp_path: Path) -> None:
    given = ("--data-dir", str(tmp_path / "data"))
    anyone = user(tmp_path)
    assert "--sender" in anyone("send", "agent.a", "1", *given, exits=2).stderr
    send = ("send", "agent.a", "1", "--sender", "agent.b", "--wait", "1")
    waiting = anyone(*send, *given, exits=2)
    assert "--wait needs a served relay" in waiting.stderr
    assert not (tmp_path / "data").exists()


def test_agent_commands_have_a_default_url(tmp_path: Path) -> None:
    anyone = user(tmp_path)
    assert "http://127.0.0.1:7171" in anyone("listen", "--help").stdout
    assert "http://127.0.0.1:7171" in anyone("request", "--help").stdout
