"""Runs one measurement in its own process, and measures its memory.

Memory is the largest sum of the peaks (VmHWM) of the process and its descendants. Shared pages
count for each process, so it is an upper bound.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

_POLL_S = 0.1
_PROC = Path("/proc")


class Outcome(NamedTuple):
    """The results of the process, with `seconds`, and its peak memory in bytes; 0 if unknown."""

    found: dict[str, Any]
    peak_bytes: int

    @property
    def seconds(self) -> float:
        """Return the measured time."""
        return float(self.found["seconds"])


def measure(task: str, errors: Path, **arguments: object) -> Outcome:
    """Run `task` of `bench.pipeline.measure`, with its standard error in the file `errors`.

    Raise `RuntimeError` with the end of that file if the task fails.
    """
    command = [sys.executable, "-m", "bench.pipeline.measure", task, json.dumps(arguments)]
    peak = 0
    with errors.open("wb") as sink:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink)
        try:
            while process.poll() is None:
                peak = max(peak, _memory(process.pid))
                time.sleep(_POLL_S)
        finally:
            process.kill()
            output, _ = process.communicate()
    if process.returncode:
        tail = errors.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{task} ended with {process.returncode}, given {arguments}:\n{tail}")
    return Outcome(json.loads(output.splitlines()[-1]), peak)


def _memory(root: int) -> int:
    """Return the sum of the peaks of a process and its descendants, in bytes."""
    return sum(_peak(pid) for pid in _family(root))


def _family(root: int) -> list[int]:
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
