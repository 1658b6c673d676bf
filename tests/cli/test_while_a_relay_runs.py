"""Looking works while another process owns the directory; owning does not."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine

LOOKING = [
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
OWNING = [
    ("send", "agent.a", "1", "--sender", "agent.b"),
    ("inbox", "agent.a", "--ack"),
    ("dead-letters", "redrive", "--all"),
    ("verify", "--repair"),
    ("rebuild",),
]


@pytest.mark.usefixtures("owned")
def test_every_verb_that_looks_works(waypost: CommandLine) -> None:
    for arguments in LOOKING:
        waypost.json(*arguments)
        waypost(*arguments)


@pytest.mark.usefixtures("owned")
def test_what_the_owner_has_just_stored_is_seen(waypost: CommandLine) -> None:
    [message] = waypost.json("inbox", "agent.a")["messages"]
    assert message["payload"] == {"from": "the owner"}
    assert "stored" in waypost("explain", "owned").stdout
    assert waypost.json("stats")["by_status"]["pending"] == 1


@pytest.mark.usefixtures("owned")
def test_the_owner_is_named(waypost: CommandLine) -> None:
    pid = waypost.json("stats")["in_use_by"]
    assert Path("/proc", pid).exists() or pid.isdigit()
    assert pid != str(os.getpid())
    assert f"in use by process {pid}" in waypost("stats").stdout
    report = waypost.json("verify")
    assert (report["ok"], report["in_use_by"]) == (True, pid)


@pytest.mark.usefixtures("owned")
def test_every_verb_that_owns_is_rejected_in_one_sentence(waypost: CommandLine) -> None:
    for arguments in OWNING:
        result = waypost(*arguments, exits=1)
        assert "is in use by another process (pid " in result.stderr
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""


@pytest.mark.usefixtures("owned")
def test_a_process_of_its_own_is_rejected_without_a_traceback(
    shell: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = shell("send", "agent.a", "1", "--sender", "agent.b")
    assert done.returncode == 1
    assert done.stderr.startswith("waypost: ")
    assert "Traceback" not in done.stderr


def test_a_process_that_died_owns_nothing(waypost: CommandLine) -> None:
    waypost("send", "agent.a", "1", "--sender", "agent.b", "--register")
    (waypost.data / "lock").write_text("4194304\n")
    assert waypost.json("stats")["in_use_by"] == ""
