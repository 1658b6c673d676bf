"""The command line on real directories, in this process unless a test needs another."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from waypost.cli.app import app

SOURCE = str(Path(__file__).parents[2] / "src")
UNSAID = dict.fromkeys(
    (
        *("WAYPOST_DATA_DIR", "WAYPOST_URL", "WAYPOST_KEY"),
        *("WAYPOST_OPERATOR_TOKEN_FILE", "WAYPOST_OPERATOR_TOKEN"),
    ),
    "",
)
WIDE = {"COLUMNS": "200", "TERM": "dumb", **UNSAID}

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
    """Runs verbs on one data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def __call__(self, *arguments: str, exits: int = 0, typed: str | bytes | None = None) -> Any:
        """The result of a verb, which must exit with `exits`; `typed` is its stdin."""
        runner = CliRunner(env={**WIDE, "WAYPOST_DATA_DIR": str(self.data)})
        result = runner.invoke(app, list(arguments), input=typed)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == exits, f"{result.exit_code}: {result.stdout}{result.stderr}"
        return result

    def json(self, *arguments: str, exits: int = 0, typed: str | None = None) -> Any:
        """What a verb prints with --json; there must be nothing else on stdout."""
        return json.loads(self(*arguments, "--json", exits=exits, typed=typed).stdout)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def waypost(data: Path) -> CommandLine:
    return CommandLine(data)


@pytest.fixture
def owned(data: Path) -> Iterator[Path]:
    """A directory that a relay in another process owns, with one message for `agent.a`."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    yield data
    owner.communicate(timeout=30)
    assert owner.returncode == 0


@pytest.fixture
def shell(data: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `python -m waypost` as a process of its own, on `data` unless told otherwise."""

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
