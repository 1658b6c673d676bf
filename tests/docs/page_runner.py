"""Execute the commands of a page in its own directory, and compare their output.

A block of `sh` is run, and a block of `text` right after it is its output. Values that change with
each run (ids, keys, times, ages) are not compared, nor are widths; a line with only "…" matches any
lines. Hidden comments control the next block:

  <!-- terminal: NAME -->   keep it running in its own terminal; it prints at least this output
  <!-- stop: NAME -->       (no block) send Ctrl-C to that terminal
  <!-- file: PATH -->       write it to a file
  <!-- not run: WHY -->     run neither the block nor compare its output

On a page the checkout is /home/you/waypost, and the relay listens on port 7171. A cluster has more
ports, `PORTS`; each is replaced by a free one.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers.nats_jetstream import find_server
from bench.peers.ports import free_port
from tests.e2e import transcripts
from tests.e2e.test_readme import ROOT, read
from tests.eventually import eventually_blocking

PIECE = re.compile(r"^<!-- (.+?) -->$|^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVE = re.compile(r"waypost serve(?!.*--port).*")
HOME = "/home/you"
CERTIFICATE = (
    "from pathlib import Path; from tests.cli.certificates import write_certificate; "
    'write_certificate(Path("cert.pem"), Path("key.pem"))'
)
PATIENCE_S = 600
READY_WITHIN_S = 120.0
PORTS = ("7171", "7172", "7173", "4222", "4223", "4224", "6222", "6223", "6224")
MASKS = (
    (re.compile(r"^\[\d+\] \S+ \S+ \[INF\]", re.MULTILINE), "[INF]"),  # of nats-server
    *transcripts.NEW_EACH_TIME,
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "<day>"),
    (re.compile(r"\d+(\.\d+)? (ms|s|min|h) ago"), "<age>"),
    (re.compile(r" *\+\d+(\.\d+)? (ms|s)\b"), " <later>"),
    (re.compile(r"(in|took) \d+(\.\d+)? (ms|s)\b"), r"\1 <long>"),
    (re.compile(r"\b\d+ stored messages?"), "<stored>"),  # confirmations may be among them
    (re.compile(r"\b[\d,]+ events from "), "<events> from "),
    (re.compile(r": [\d,]+ messages\.$", re.MULTILINE), ": <messages>."),
    (re.compile(r"[─━]+"), "─"),
    (re.compile(r" +"), " "),
)


def masked(text: str) -> list[str]:
    """Return the lines of a text without the parts that change with each run."""
    for pattern, name in MASKS:
        text = pattern.sub(name, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def matches(expected: list[str], printed: list[str]) -> bool:
    """Return whether lines match the expected ones, where "…" matches any number of lines."""
    if not expected:
        return not printed
    if expected[0] == "…":
        return any(matches(expected[1:], printed[start:]) for start in range(len(printed) + 1))
    return bool(printed) and printed[0] == expected[0] and matches(expected[1:], printed[1:])


def pieces(page: str) -> Iterator[tuple[str, str, str, str, int]]:
    """Yield comment, language, text, expected output and line of each block."""
    text = read(page)
    found = list(PIECE.finditer(text))
    note, taken = "", False
    for number, piece in enumerate(found):
        line = text.count("\n", 0, piece.start()) + 1
        if piece[1]:
            if piece[1].startswith("stop:"):
                yield piece[1], "", "", "", line
            else:
                note = piece[1]
            continue
        if not taken:
            follows = found[number + 1] if number + 1 < len(found) else None
            taken = (
                follows is not None
                and follows[2] == "text"
                and not text[piece.end() : follows.start()].strip()
            )
            printed = follows[3] if follows is not None and taken else ""
            yield note, piece[2], piece[3], printed, line
        else:
            taken = False
        note = ""


class Reader:
    """Execute pages in a home directory with a checkout."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._directory = home / "waypost"
        self._directory.mkdir()
        self._terminals: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        self._ports = {shown: str(free_port()) for shown in PORTS}  # others use those shown
        program = f'exec {sys.executable} -m waypost "$@"\n'
        self._write("waypost", f"#!/bin/sh\n{program}")
        self._write("run", f'#!/bin/sh\ntest "$1" = waypost && shift\n{program}')
        self._write(".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        if (server := find_server()) is not None:
            self._write("nats-server", f'#!/bin/sh\nexec {server} "$@"\n')
        if shutil.which("openssl") is None:
            self._write(
                "openssl", f"#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -c '{CERTIFICATE}'"
            )
        self._path = f"{self._directory}:{os.environ['PATH']}"
        self._shell = transcripts.Shell(self._directory, self._path)
        here = {"HOME": str(home), "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"}
        self._environment = {**os.environ, **here, "PATH": self._path}
        self._shell.run("; ".join(f"export {name}={value}" for name, value in here.items()))

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *problem: object) -> None:
        for process, _ in self._terminals.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._shell.__exit__(*problem)

    def follow(self, page: str) -> int:
        """Execute the page and return the number of blocks that were run."""
        ran = 0
        for note, language, text, expected, line in pieces(page):
            what, _, name = note.partition(": ")
            script = SERVE.sub(r"\g<0> --port 7171", text)
            for shown, port in self._ports.items():
                script = script.replace(shown, port)
            try:
                match what, language:
                    case "not run", _:
                        continue
                    case "stop", _:
                        self._stop(name)
                    case "file", _:
                        self._write(name, script)
                    case "terminal", "sh":
                        self._start(name, script, expected)
                        ran += 1
                    case "", "sh":
                        self._run(script, expected)
                        ran += 1
                    case _, "sh":
                        raise AssertionError(f"unknown comment {note!r}")
                    case _:
                        pass  # shown, not executed
            except AssertionError as problem:
                raise AssertionError(f"{page}, line {line}: {problem}") from None
        return ran

    def _write(self, name: str, content: str) -> None:
        path = self._directory / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        path.chmod(0o700)

    def _run(self, script: str, expected: str) -> None:
        printed = self._normalised(self._shell.run(script))
        wanted = masked(expected)
        assert not wanted or matches(wanted, masked(printed)), f"it printed\n{printed}"

    def _start(self, name: str, script: str, expected: str) -> None:
        log = self._home / f"{name}.terminal"
        with log.open("wb") as output:
            settings: dict[str, Any] = {"cwd": self._directory, "env": self._environment}
            process = subprocess.Popen(
                ["bash", "-c", script.strip()],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **settings,
            )
        self._terminals[name] = process, log
        wanted = set(masked(expected))
        assert wanted, "a terminal needs output that shows when it is ready"

        def is_ready() -> bool:
            absent = wanted - set(masked(self._normalised(log.read_text("utf-8"))))
            is_running = process.poll() is None
            assert is_running or not absent, f"{absent} is not in\n{log.read_text('utf-8')}"
            return not absent

        eventually_blocking(is_ready, f"{wanted} in {log}", timeout_s=READY_WITHIN_S)

    def _stop(self, name: str) -> None:
        process, log = self._terminals.pop(name)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE_S)
        assert process.returncode == 0, log.read_text("utf-8")

    def _normalised(self, printed: str) -> str:
        printed = printed.replace(str(self._home), HOME)
        for shown, port in self._ports.items():
            printed = printed.replace(port, shown)
        return printed
