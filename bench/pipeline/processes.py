"""Runs one measurement in its own process, and measures its memory and CPU time.

Memory is the largest sum of the peaks (VmHWM) of the process and its descendants. Shared pages
count for each process, so it is an upper bound. A process counts from the second look on: one that
Java is just starting has Java's own memory until it runs a program of its own. CPU time is that of
all of them, from their start.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_POLL_S = 0.1
_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Outcome(NamedTuple):
    """The results of the process, with `seconds`; its peak memory and CPU time, 0 if unknown."""

    found: dict[str, Any]
    peak_bytes: int
    cpu_seconds: float

    @property
    def seconds(self) -> float:
        """Return the measured time."""
        return float(self.found["seconds"])


def measure(task: str, errors: Path, **arguments: object) -> Outcome:
    """Run `task` of `bench.pipeline.measure`, with its standard error in the file `errors`.

    Raise `RuntimeError` with the end of that file if the task fails.
    """
    command = [sys.executable, "-m", "bench.pipeline.measure", task, json.dumps(arguments)]
    output, peak, cpu_s = run(command, errors, os.environ)
    return Outcome(json.loads(output.splitlines()[-1]), peak, cpu_s)


def run(
    command: Sequence[str], errors: Path, environment: Mapping[str, str]
) -> tuple[bytes, int, float]:
    """Run a command; return its output, its peak memory and its CPU time.

    Raise `RuntimeError` with the end of its standard error if it fails.
    """
    peak, cpu_s = 0, 0.0
    seen: set[int] = set()
    with errors.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=sink, env=dict(environment)
        )
        try:
            while process.poll() is None:
                pids = family(process.pid)
                peak = max(peak, sum(_peak(pid) for pid in pids if pid in seen))
                seen = set(pids)
                cpu_s = max(cpu_s, sum(_cpu_seconds(pid) for pid in pids))
                time.sleep(_POLL_S)
        finally:
            process.kill()
            output, _ = process.communicate()
    if process.returncode:
        tail = errors.read_text(errors="replace")[-3000:]
        words = " ".join(command[2:])
        raise RuntimeError(f"{words} ended with {process.returncode}:\n{tail}")
    return output, peak, cpu_s


def family(root: int) -> list[int]:
    """Return a process and its descendants."""
    parents = {}
    for entry in _PROC.glob("[0-9]*"):
        try:
            # The name may hold any character; after it: state, parent, …
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except (OSError, IndexError, ValueError):
            continue  # the process has ended
    family, found = [root], {root}
    for pid in family:
        children = [child for child, parent in parents.items() if parent == pid]
        family += [child for child in children if child not in found]
        found.update(children)
    return family


def _peak(pid: int) -> int:
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of those of its children that have ended."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS_PER_S
