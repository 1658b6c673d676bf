"""`waypost mcp` as a process."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import UNSET
from waypost.client import Identity


def key_file(directory: Path, subject: str) -> Path:
    file = directory / f"{subject}.key"
    Identity.new(subject).save(file)
    return file


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, **UNSET, "WAYPOST_SUBJECT": "", "HOME": str(home), "COLUMNS": "200"}


def start(home: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "waypost", "mcp", *arguments],
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: "subprocess.Popen[str]", typed: str = "") -> tuple[int, str, str]:
    """Close stdin and wait; return exit code, stdout and stderr."""
    out, err = process.communicate(typed, timeout=60)
    return process.returncode, out, err
