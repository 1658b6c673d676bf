"""While a relay runs on a directory, read commands work and write commands are rejected."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine

READ_COMMANDS = [
    ("inbox", "agent.a"),
    ("explain", "owned"),
    ("endpoints",),
    ("stats",),
    ("dead-letters", "list"),
    ("dead-letters", "list", "--group"),
    ("config", "check"),
    ("config", "show"),
    ("verify",),
]
WRITE_COMMANDS = [
    ("send", "agent.a", "1", "--sender", "agent.b"),
    ("inbox", "agent.a", "--ack"),
    ("dead-letters", "redrive", "--all"),
    ("verify", "--repair"),
    ("rebuild",),
]


@pytest.mark.usefixtures("in_use")
def test_read_commands_work_while_a_relay_runs(waypost: CommandLine) -> None:
    for arguments in READ_COMMANDS:
        waypost.json(*arguments)
        waypost(*arguments)


@pytest.mark.usefixtures("in_use")
def test_a_message_just_stored_by_the_relay_is_seen(waypost: CommandLine) -> None:
    [message] = waypost.json("inbox", "agent.a")["messages"]
    assert message["payload"] == {"from": "the owner"}
    assert "stored" in waypost("explain", "owned").stdout
    assert waypost.json("stats")["by_status"]["pending"] == 1


@pytest.mark.usefixtures("in_use")
def test_the_process_of_the_relay_is_reported(waypost: CommandLine) -> None:
    pid = waypost.json("stats")["in_use_by"]
    assert Path("/proc", pid).exists() or pid.isdigit()
    assert pid != str(os.getpid())
    assert f"in use by process {pid}" in waypost("stats").stdout
    report = waypost.json("verify")
    assert (report["ok"], report["in_use_by"]) == (True, pid)


@pytest.mark.usefixtures("in_use")
def test_write_commands_are_rejected_in_one_sentence(waypost: CommandLine) -> None:
    for arguments in WRITE_COMMANDS:
        result = waypost(*arguments, exits=1)
        assert "is in use by another process (pid " in result.stderr
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""


@pytest.mark.usefixtures("in_use")
def test_a_separate_process_is_rejected_without_a_traceback(
    shell: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = shell("send", "agent.a", "1", "--sender", "agent.b")
    assert done.returncode == 1
    assert done.stderr.startswith("waypost: ")
    assert "Traceback" not in done.stderr


def test_a_dead_process_does_not_hold_the_directory(waypost: CommandLine) -> None:
    waypost("send", "agent.a", "1", "--sender", "agent.b", "--register")
    (waypost.data / "lock").write_text("4194304\n")
    assert waypost.json("stats")["in_use_by"] == ""


@pytest.mark.usefixtures("in_use")
def test_the_owner_is_found_after_lock_was_deleted(waypost: CommandLine) -> None:
    (waypost.data / "lock").unlink()
    assert waypost.json("stats")["in_use_by"] == "unknown"
    assert "in use" in waypost("send", "agent.a", "1", "--sender", "agent.b", exits=1).stderr
