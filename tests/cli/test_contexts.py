"""`waypost context`: named relays, so that other commands need no `--url`."""

import stat
from pathlib import Path

import pytest

from tests.cli.serve_process import User, serving


def at_home(home: Path) -> User:
    """A user who gives no relay."""
    user = User("", home)
    del user.environment["WAYPOST_URL"]
    return user


@pytest.mark.process
def test_commands_use_the_relay_and_the_token_of_the_context(tmp_path: Path) -> None:
    with serving(tmp_path) as relay:
        user = at_home(tmp_path)
        token = ("--operator-token-file", relay.operator_token_file)
        assert "in use" in user("context", "add", "home", relay.url, *token).stdout
        assert user.json("stats")["url"] == relay.url
        assert relay.url in user("ping").stdout
        user("context", "add", "other", "http://127.0.0.1:9")
        assert user.json("stats")["url"] == relay.url
        user("context", "use", "other")
        assert "127.0.0.1:9" in user("ping", exits=1).stderr
        assert user.json("stats", "--url", relay.url, *token)["url"] == relay.url
        listed = user.json("context", "list")
        assert (listed["current"], set(listed["contexts"])) == ("other", {"home", "other"})
        user("context", "remove", "other")
        assert user.json("context", "list")["current"] == ""


def test_a_data_directory_that_is_given_takes_precedence(tmp_path: Path) -> None:
    user = at_home(tmp_path)
    user("context", "add", "far", "http://127.0.0.1:9")
    user(
        "send",
        "agent.a",
        "1",
        "--sender",
        "agent.b",
        "--register",
        "--data-dir",
        str(tmp_path / "d"),
    )
    assert user.json("stats", "--data-dir", str(tmp_path / "d"))["by_status"]["pending"] == 1


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    user = at_home(tmp_path)
    user("context", "add", "home", "http://127.0.0.1:7171")
    file = tmp_path / ".config" / "waypost" / "contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    assert f"chmod 600 {file}" in user("stats", exits=1).stderr


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("use", "nowhere"), "'waypost context add NAME URL' adds one"),
        (("remove", "nowhere"), "no context 'nowhere'"),
        (("add", "a/b", "http://127.0.0.1:7171"), "letters, digits"),
        (("add", "a", "127.0.0.1"), "http"),
    ],
)
def test_what_is_typed_wrongly_is_answered(
    tmp_path: Path, arguments: tuple[str, ...], answer: str
) -> None:
    exits = 2 if arguments[0] == "add" else 1
    assert answer in at_home(tmp_path)("context", *arguments, exits=exits).stderr


def test_without_contexts_the_list_says_how_to_add_one(tmp_path: Path) -> None:
    assert "waypost context add NAME URL" in at_home(tmp_path)("context", "list").stdout


@pytest.mark.parametrize("content", ["{", '{"current": 5}', '{"current": "lost"}'])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    file = tmp_path / ".config" / "waypost" / "contexts.json"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    file.chmod(0o600)
    problem = at_home(tmp_path)("stats", exits=1).stderr
    assert "contexts.json" in problem or "no context 'lost'" in problem
