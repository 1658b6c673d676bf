"""The start of the command line: help, errors, and modules that it does not load."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_tree import CliRunner
from tests.cli.conftest import SOURCE, WIDE, CommandLine
from waypost.cli.app import app
from waypost.cli.local import LocalRelay

Shell = Callable[..., subprocess.CompletedProcess[str]]

COMMANDS = [
    ("send",),
    ("inbox",),
    ("explain",),
    ("endpoints",),
    ("stats",),
    ("dead-letters", "list"),
    ("dead-letters", "redrive"),
    ("dead-letters", "purge"),
    ("config", "check"),
    ("config", "show"),
    ("names", "list"),
    ("names", "bind"),
    ("names", "unbind"),
    ("verify",),
    ("rebuild",),
]
LOCAL_COMMANDS = [("verify",), ("rebuild",)]
AGENT_COMMANDS = [("listen",), ("request",)]
OTHER_COMMANDS = [("serve",), ("keys", "new"), ("keys", "show")]
READ_COMMANDS = [
    ("inbox", "agent.a"),
    ("inbox", "agent.a", "--ack"),
    ("explain", "some-id"),
    ("endpoints",),
    ("stats",),
    ("dead-letters", "list"),
    ("dead-letters", "list", "--group"),
    ("dead-letters", "redrive", "--all"),
    ("dead-letters", "purge", "--yes"),
    ("config", "show"),
    ("verify",),
    ("verify", "--repair"),
    ("rebuild",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_and_the_common_options(
    waypost: CommandLine, command: tuple[str, ...]
) -> None:
    text = waypost(*command, "--help").stdout
    assert f"waypost {' '.join(command)}" in text.partition("Example")[2]
    assert "--data-dir" in text
    assert "WAYPOST_DATA_DIR" in text
    assert "waypost-data" in text
    assert ("WAYPOST_URL" in text) == (command not in LOCAL_COMMANDS)
    assert "--json" in text


@pytest.mark.parametrize("command", [*AGENT_COMMANDS, *OTHER_COMMANDS], ids=" ".join)
def test_every_agent_command_has_an_example_and_its_options(
    waypost: CommandLine, command: tuple[str, ...]
) -> None:
    text = waypost(*command, "--help").stdout
    assert f"waypost {' '.join(command)}" in text.partition("Example")[2]
    if command in AGENT_COMMANDS:
        assert "WAYPOST_URL" in text
        assert "WAYPOST_KEY" in text
        assert "--json" in text


def test_help_fits_a_terminal_of_80_columns_without_broken_lines() -> None:
    runner = CliRunner(env={**WIDE, "COLUMNS": "80"})
    for command in (*COMMANDS, *AGENT_COMMANDS, *OTHER_COMMANDS):
        prose = runner.invoke(app, [*command, "--help"]).stdout.partition("╭")[0]
        paragraphs = [line.strip() for line in prose.splitlines() if line.strip()]
        broken = [one for one in paragraphs if " " not in one and not one.startswith("Example")]
        assert not broken, f"{command}: {broken}"


@pytest.mark.parametrize("command", [(), *COMMANDS, *AGENT_COMMANDS, *OTHER_COMMANDS], ids=" ".join)
def test_help_shows_flags_without_a_type(waypost: CommandLine, command: tuple[str, ...]) -> None:
    text = waypost(*command, "--help").stdout
    assert "--help" in text
    assert "<bool>" not in text


@pytest.mark.process
def test_help_does_not_load_the_relay() -> None:
    script = (
        "import sys; from waypost.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('waypost.relay', 'waypost.client', 'waypost.server', 'sqlite3', 'msgspec',\n"
        "         'httpx', 'uvicorn', 'cryptography')\n"
        "print([m for m in sys.modules if m.startswith(heavy)], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == "[]\n"


@pytest.mark.process
def test_without_typer_it_prints_the_command_to_install_it(tmp_path: Path) -> None:
    script = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'typer' else real(name, *more)\n"
        "from waypost.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "pip install 'waypost[cli]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", READ_COMMANDS, ids=" ".join)
def test_a_directory_without_a_relay_is_an_error_and_stays_untouched(
    waypost: CommandLine, arguments: tuple[str, ...]
) -> None:
    result = waypost(*arguments, exits=1)
    assert "is not a Waypost data directory" in result.stderr
    assert "--data-dir" in result.stderr
    assert result.stdout == ""
    assert not waypost.data.exists()


def test_the_data_directory_can_be_named_by_option_or_environment(
    shell: Shell, data: Path, tmp_path: Path
) -> None:
    assert shell("send", "agent.a", "1", "--sender", "agent.b", "--register").returncode == 0
    by_environment = subprocess.run(
        [sys.executable, "-m", "waypost", "endpoints"],
        env={**os.environ, "WAYPOST_DATA_DIR": str(data)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "agent.a" in by_environment.stdout
    by_default = subprocess.run(
        [sys.executable, "-m", "waypost", "endpoints"],
        env={**os.environ, "PYTHONPATH": SOURCE, "WAYPOST_DATA_DIR": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f"{tmp_path}/waypost-data is not a Waypost data directory" in by_default.stderr


def test_a_process_prints_only_json(shell: Shell) -> None:
    done = shell("send", "agent.a", '"grüße"', "--sender", "agent.b", "--register", "--json")
    assert done.returncode == 0
    assert done.stdout.startswith("{\n")
    assert done.stderr == ""


def test_json_is_utf_8_even_where_the_terminal_is_not(shell: Shell) -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    shell("send", "agent.a", '"grüße"', "--sender", "agent.b", "--register", "--id", "greeting")
    done = shell("inbox", "agent.a", "--json", env=ascii_only, encoding="utf-8")
    assert "grüße" in done.stdout


def test_a_bug_keeps_its_traceback(waypost: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(LocalRelay, "endpoints", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        waypost("endpoints")


def test_no_permission_is_one_sentence(
    waypost: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/data/journal/1.open")

    monkeypatch.setattr(LocalRelay, "endpoints", forbidden)
    result = waypost("endpoints", exits=1)
    assert result.stderr == "waypost: permission denied: /data/journal/1.open\n"


def test_the_version_is_printed(waypost: CommandLine) -> None:
    assert waypost("--version").stdout.strip()


def test_without_arguments_the_help_is_shown(waypost: CommandLine) -> None:
    assert "Maintenance" in waypost(exits=2).stdout
