"""A wheel, a source archive, and environments with them installed."""

import os
import shutil
import subprocess
import sys
from email.message import Message
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
# Variables that would point at this checkout or at an active environment.
NOT_OURS = ("PYTHONPATH", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")


def clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in NOT_OURS and not name.startswith("WAYPOST_")
    }


def uv(*arguments: object, **more: str) -> str:
    """Run uv and return its output; fail if it fails. `more` is its environment."""
    beside = Path(sys.executable).parent
    program = shutil.which("uv", path=f"{beside}{os.pathsep}{os.environ['PATH']}")
    assert program is not None, "no uv here; ./run installs it into .venv"
    done = subprocess.run(
        [program, *map(str, arguments)],
        env={**clean_environment(), "UV_PYTHON_DOWNLOADS": "never", **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Distribution:
    """A wheel built from the source archive by `uv build`, without network."""

    def __init__(self, directory: Path) -> None:
        uv("build", "--quiet", "--offline", "--out-dir", directory, ROOT)
        [self.wheel] = directory.glob("*.whl")
        [self.archive] = directory.glob("*.tar.gz")
        self._locked = directory / "locked.txt"
        uv(
            "export",
            "--quiet",
            "--project",
            ROOT,
            "--frozen",
            "--offline",
            "--all-extras",
            "--no-dev",
            "--no-hashes",
            "--no-emit-project",
            "--output-file",
            self._locked,
        )

    @cached_property
    def files(self) -> set[str]:
        with ZipFile(self.wheel) as wheel:
            return {name for name in wheel.namelist() if not name.endswith("/")}

    @cached_property
    def metadata(self) -> Message:
        [name] = [name for name in self.files if name.endswith(".dist-info/METADATA")]
        with ZipFile(self.wheel) as wheel:
            return HeaderParser().parsestr(wheel.read(name).decode())

    def install(self, directory: Path, extra: str = "") -> "Installed":
        """Create an environment with the wheel and its locked requirements only."""
        uv("venv", "--quiet", "--python", sys.executable, directory)
        wanted = f"waypost{f'[{extra}]' if extra else ''} @ {self.wheel.as_uri()}"
        python = directory / "bin" / "python"
        uv("pip", "install", "--quiet", "--python", python, "--constraint", self._locked, wanted)
        return Installed(directory)


class Installed:
    """An environment with Waypost in it. Programs run in `home`, away from the source."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.home = directory / "home"
        self.home.mkdir()
        self.environment = {**clean_environment(), "HOME": str(self.home)}

    def waypost(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run(self.bin / "waypost", *arguments)

    def python(self, program: str) -> str:
        """Run a program and return its output; fail if it fails."""
        done = self._run(self.bin / "python", "-W", "error", "-c", program)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def has(self, module: str) -> bool:
        done = self._run(self.bin / "python", "-c", f"import {module}")
        return done.returncode == 0

    def starts(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [self.bin / "waypost", *arguments],
            cwd=self.home,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _run(self, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments],
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
