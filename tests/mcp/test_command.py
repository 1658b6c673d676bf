"""`waypost mcp`: a failed start is reported in one line."""

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_tree import CliRunner
from tests.cli.conftest import WIDE
from tests.mcp.processes import key_file
from waypost.cli.app import app


@pytest.fixture
def rejected(tmp_path: Path) -> Any:
    """Run the command, which must not start; return its stderr."""

    def run(*arguments: str, exits: int) -> str:
        runner = CliRunner(env={**WIDE, "WAYPOST_SUBJECT": "", "HOME": str(tmp_path)})
        result = runner.invoke(app, ["mcp", *arguments])
        assert result.exit_code == exits, result.stderr
        assert result.stdout == ""
        assert result.stderr.startswith("waypost: ")
        assert result.stderr.count("\n") == 1
        return result.stderr

    return run


def test_without_a_subject_it_asks_for_one(rejected: Any) -> None:
    output = rejected(exits=1)
    assert "--subject" in output
    assert "--key" in output


def test_without_keys_it_explains_how_to_create_them(rejected: Any) -> None:
    assert "waypost keys new agent.ann" in rejected("--subject", "agent.ann", exits=1)


def test_keys_of_another_subject_are_rejected(rejected: Any, tmp_path: Path) -> None:
    key = str(key_file(tmp_path, "agent.ann"))
    output = rejected("--subject", "agent.bob", "--key", key, exits=2)
    assert "holds the keys of agent.ann, not of agent.bob" in output


def test_an_invalid_key_file_is_named(rejected: Any, tmp_path: Path) -> None:
    file = tmp_path / "broken.key"
    file.write_text("{}")
    file.chmod(0o600)
    assert f"{file} is not a key file" in rejected("--key", str(file), exits=1)


def test_an_unreadable_operator_token_file_is_named(rejected: Any, tmp_path: Path) -> None:
    key = str(key_file(tmp_path, "agent.ann"))
    output = rejected("--key", key, "--operator-token-file", str(tmp_path / "none"), exits=1)
    assert "cannot read the operator's token" in output


@pytest.mark.parametrize("url", ["nonsense", "ftp://somewhere"])
def test_an_invalid_relay_address_is_named(rejected: Any, tmp_path: Path, url: str) -> None:
    key = str(key_file(tmp_path, "agent.ann"))
    assert "not the address of a relay" in rejected("--key", key, "--url", url, exits=2)


def test_it_does_not_listen_on_all_interfaces_by_mistake(rejected: Any, tmp_path: Path) -> None:
    key = str(key_file(tmp_path, "agent.ann"))
    assert "--allow-host" in rejected("--key", key, "--http", "0.0.0.0:7272", exits=2)


def test_an_installation_without_the_extra_names_the_extra_to_install(
    rejected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec

    def without_mcp(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "mcp" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_mcp)
    output = rejected("--subject", "agent.ann", exits=1)
    assert output == (
        "waypost: 'waypost mcp' needs mcp, which is not installed: pip install 'waypost[mcp]'\n"
    )


@pytest.mark.parametrize("other", [("--shared",), ("--http", "7272")])
def test_a_channel_is_for_the_one_program_that_starts_it(
    rejected: Any, tmp_path: Path, other: tuple[str, ...]
) -> None:
    key = str(key_file(tmp_path, "agent.ann"))
    assert f"without {other[0]}" in rejected("--key", key, "--channel", *other, exits=2)
