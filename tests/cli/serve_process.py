"""Relays served by another process, and users that run commands against them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.command_tree import CliRunner
from tests.cli.conftest import UNSET, WIDE
from tests.harness.relay_process import RelayProcess
from waypost.cli.app import app


class ServeProcess(RelayProcess):
    """`waypost serve` on the data directory `data`; keys of agents are in `home`."""

    def __init__(self, data: Path, home: Path, options: tuple[str, ...]) -> None:
        self.data = data
        self.home = home
        arguments = ["-m", "waypost", "serve", "--data-dir", str(data), "--port", "0", *options]
        super().__init__(arguments, home / "serve.log", ready="Stop with Ctrl-C", environment=UNSET)

    @property
    def operator_token_file(self) -> str:
        return str(self.data / "operator-token")

    def user(self) -> "User":
        return User(self.url, self.home)

    def operator(self) -> "User":
        return User(self.url, self.home, WAYPOST_OPERATOR_TOKEN_FILE=self.operator_token_file)


class User:
    """Runs commands against one URL; keys are in `home`."""

    def __init__(self, url: str, home: Path, **environment: str) -> None:
        self.url = url
        self.home = home
        self.environment = {
            **WIDE,
            "WAYPOST_URL": url,
            "HOME": str(home),
            **environment,
        }

    def __call__(self, *arguments: str, exits: int = 0, stdin: str | None = None) -> Any:
        """Run a command, which must exit with `exits`; return its result."""
        runner = CliRunner(env=self.environment)
        result = runner.invoke(app, list(arguments), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == exits, f"{result.exit_code}: {result.stdout}{result.stderr}"
        return result

    def json(self, *arguments: str, exits: int = 0) -> Any:
        """Return the JSON output of a command."""
        return json.loads(self(*arguments, "--json", exits=exits).stdout)

    def create_keys(self, *subjects: str) -> None:
        for subject in subjects:
            self("keys", "new", subject)

    def key_of(self, subject: str) -> Path:
        return self.home / ".config" / "waypost" / f"{subject}.key"

    def start_command(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command in another process."""
        return subprocess.Popen(
            [sys.executable, "-m", "waypost", *arguments],
            env={**os.environ, **self.environment, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@contextmanager
def serving(tmp_path: Path, *options: str, data: Path | None = None) -> Iterator[ServeProcess]:
    """Serve a relay for the block; it must exit with 0."""
    relay = ServeProcess(data or tmp_path / "data", tmp_path, options)
    try:
        yield relay
    finally:
        if relay.process.poll() is None:
            assert relay.end() == 0, relay.log
