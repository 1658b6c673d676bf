"""Run the command line on real directories, in this process or in another one."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_tree import CliRunner
from waypost.cli.app import app

SOURCE = str(Path(__file__).parents[2] / "src")
VARIABLES = (
    "WAYPOST_DATA_DIR",
    "WAYPOST_URL",
    "WAYPOST_KEY",
    "WAYPOST_OPERATOR_TOKEN_FILE",
    "WAYPOST_OPERATOR_TOKEN",
    "AGENT_CB_FAILURE_THRESHOLD",
    "AGENT_CB_RESET_TIMEOUT_MS",
    "AGENT_CB_SUCCESS_THRESHOLD",
    "AGENT_RATE_LIMIT_PER_MIN",
)
UNSET = dict.fromkeys(VARIABLES, "")
WIDE = {"COLUMNS": "200", "TERM": "dumb", **UNSET}

OWNER = """
import asyncio, sys
from waypost import Relay

async def main():
    async with Relay(sys.argv[1]) as relay:
        relay.register_endpoint("agent.a")
        await relay.publish("agent.a", {"from": "the owner"}, sender="agent.b", message_id="owned")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


class CommandLine:
    """Runs commands on one data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def __call__(self, *arguments: str, exits: int = 0, stdin: str | bytes | None = None) -> Any:
        """Run a command, which must exit with `exits`; return its result."""
        runner = CliRunner(env={**WIDE, "WAYPOST_DATA_DIR": str(self.data)})
        result = runner.invoke(app, list(arguments), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == exits, f"{result.exit_code}: {result.stdout}{result.stderr}"
        return result

    def try_(self, arguments: list[str]) -> bool:
        """Run a command, and return whether it succeeded."""
        return CliRunner(env=WIDE).invoke(app, arguments).exit_code == 0

    def output(self, arguments: list[str]) -> str:
        """Run a command, and return what it prints, however it ends."""
        return str(CliRunner(env=WIDE).invoke(app, arguments).output)

    def json(self, *arguments: str, exits: int = 0, stdin: str | None = None) -> Any:
        """Return the JSON output of a command; stdout must hold nothing else."""
        return json.loads(self(*arguments, "--json", exits=exits, stdin=stdin).stdout)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def waypost(data: Path) -> CommandLine:
    return CommandLine(data)


@pytest.fixture
def in_use(data: Path) -> Iterator[Path]:
    """A directory in use by a relay in another process, with one message for `agent.a`."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    yield data
    owner.communicate(timeout=60)
    assert owner.returncode == 0


@pytest.fixture
def shell(data: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs `python -m waypost` in another process, by default on `data`."""

    def run(*arguments: str, data: Path = data, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "waypost", *arguments, "--data-dir", str(data)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **more,
        )

    return run
