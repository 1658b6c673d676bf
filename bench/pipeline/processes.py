"""One measurement in a process of its own, and how much memory that took.

Memory is the largest sum, over the process and its descendants, of what each had at most (VmHWM).
Pages that processes share count for each of them, so it is rather too much than too little.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

_PAUSE_S = 0.1
_PROC = Path("/proc")


class Outcome(NamedTuple):
    """What the process found (`seconds` and more), and its peak memory in bytes; 0 if unknown."""

    found: dict[str, Any]
    peak_bytes: int

    @property
    def seconds(self) -> float:
        """The time that counts."""
        return float(self.found["seconds"])


def measure(task: str, errors: Path, **arguments: object) -> Outcome:
    """Run `task` of `bench.pipeline.measure`; its standard error goes to the file `errors`.

    Raises `RuntimeError` with the end of that if it fails.
    """
    command = [sys.executable, "-m", "bench.pipeline.measure", task, json.dumps(arguments)]
    peak = 0
    with errors.open("wb") as sink:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink)
        try:
            while process.poll() is None:
                peak = max(peak, _memory(process.pid))
                time.sleep(_PAUSE_S)
        finally:
            process.kill()
            output, _ = process.communicate()
    if process.returncode:
        told = errors.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{task} ended with {process.returncode}, given {arguments}:\n{told}")
    return Outcome(json.loads(output.splitlines()[-1]), peak)


def _memory(root: int) -> int:
    """Peaks of a process and its descendants, added up, in bytes."""
    return sum(_peak(pid) for pid in _family(root))


def _family(root: int) -> list[int]:
    parents = {}
    for entry in _PROC.glob("[0-9]*"):
        try:
            # After the name, which may hold anything: state, parent, …
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except (OSError, IndexError, ValueError):
            continue  # gone meanwhile
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
