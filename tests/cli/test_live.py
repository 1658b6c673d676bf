"""`waypost top`, `waypost tail`, `waypost ping`, and shell completion."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import fill, in_relay
from tests.cli.serve_process import User, serving
from waypost import Relay


def test_top_prints_a_line_for_each_refresh_if_it_has_no_terminal(waypost: CommandLine) -> None:
    fill(waypost.data)
    first, second = waypost("top", "--count", "2", "--every", "0.1").stdout.splitlines()
    assert "6 pending, 2 leased, 0 dead" in first
    assert first.endswith("0 findings")
    assert "0.0/s stored, 0.0/s acknowledged, 0.0/s rejected" in second


@pytest.mark.process
def test_top_refreshes_a_terminal_in_place_until_q(waypost: CommandLine) -> None:
    import pty

    fill(waypost.data)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "waypost", "top", "--data-dir", str(waypost.data)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    running = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while b"q ends" not in seen:
        seen += os.read(ours, 4096)
    assert b"Nothing needs attention." in seen
    assert b"agent.a" in seen
    os.write(ours, b"q")
    assert running.wait(timeout=60) == 0
    os.close(ours)


@pytest.mark.process
def test_tail_prints_events_of_one_agent_while_a_relay_runs(waypost: CommandLine) -> None:
    fill(waypost.data)
    home = waypost.data.parent
    user = User("", home)
    del user.environment["WAYPOST_URL"]
    arguments = ("tail", "--data-dir", str(waypost.data), "--agent", "agent.z", "--json")
    following = user.start_command(*arguments, "--count", "2")

    async def act(relay: Relay) -> None:
        relay.register_endpoint("agent.z")
        number = 0
        while following.poll() is None:  # it may begin to follow at any time
            await relay.publish("agent.c", "not mine", sender="agent.b")
            await relay.publish("agent.z", number, sender=f"agent.s{number}")
            number += 1

    in_relay(waypost.data, act)
    output, problem = following.communicate(timeout=60)
    assert following.returncode == 0, problem
    events = [json.loads(line) for line in output.splitlines()]
    assert len(events) == 2
    assert {one["endpoint"] for one in events} == {"agent.z"}
    assert "payload" not in events[-1]


@pytest.mark.process
def test_ping_shows_the_version_and_the_median(tmp_path: Path) -> None:
    with serving(tmp_path) as relay:
        user = relay.user()
        found = user.json("ping", "--count", "3")
        assert (found["version"], found["count"]) == (version("waypost"), 3)
        assert 0 < found["min_ms"] <= found["median_ms"] <= found["max_ms"]
        text = user("ping").stdout
        assert "ready, Waypost" in text
        assert "median of 5" in text


def test_ping_reports_what_is_wrong(tmp_path: Path) -> None:
    problem = User("http://127.0.0.1:9", tmp_path)("ping", exits=1).stderr
    assert "no relay answers at http://127.0.0.1:9" in problem
    assert "waypost serve" in problem


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("tail", "--agent", "agent..a"), "agent..a"),
        (("tail", "--url", "http://127.0.0.1:9"), "run it on the relay's machine"),
        (("top", "--every", "0"), "--every"),
        (("ping", "--count", "0"), "--count"),
        (("ping", "--url", "nowhere"), "nowhere"),
    ],
)
def test_what_is_typed_wrongly_is_answered(
    waypost: CommandLine, arguments: tuple[str, ...], answer: str
) -> None:
    fill(waypost.data)
    assert answer in waypost(*arguments, exits=2).stderr


def test_an_unused_directory_has_nothing_to_follow(waypost: CommandLine) -> None:
    assert "--data-dir" in waypost("tail", exits=1).stderr
    assert not waypost.data.exists()


@pytest.mark.process
def test_the_shell_completes_commands() -> None:
    waypost = Path(sys.executable).with_name("waypost")

    def complete(**asked: str) -> str:
        environment = {**os.environ, **asked}
        return subprocess.run(
            [waypost], env=environment, capture_output=True, text=True, check=False, timeout=60
        ).stdout

    assert "complete_bash" in complete(_WAYPOST_COMPLETE="source_bash")
    words = {"COMP_WORDS": "waypost context ", "COMP_CWORD": "2"}
    offered = complete(_WAYPOST_COMPLETE="complete_bash", **words).split()
    assert offered == ["add", "use", "list", "remove"]
