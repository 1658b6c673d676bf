"""What a million messages cost: CPU time and bytes on disk.

CPU time is that of this process, in which the client or the embedded queue runs, and of the
server, in the runs that are timed anyway. Bytes on disk are the blocks by which the files of an
empty store grow: with all messages pending, and after their acknowledgement. Write-ahead logs
count.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers import Contestant
from bench.series import median, number_text
from bench.tables import Table
from bench.turns import TimedOperation

MILLION = 1_000_000
BLOCK_BYTES = 512  # of st_blocks
IN_FLIGHT = 100
FILL = 10_000
"""Messages that an empty store gets to measure its growth."""


class CpuMeter:
    """Wraps the operations of one contestant, and measures the CPU time of each run."""

    def __init__(self, contestant: Contestant, *operations: TimedOperation) -> None:
        self._contestant = contestant
        self._operations = operations
        self._spent: list[list[float]] = [[] for _ in operations]

    def operations(self) -> Sequence[TimedOperation]:
        """Return the operations, measured."""
        return [self._measured(index) for index in range(len(self._operations))]

    def seconds(self) -> list[float]:
        """Return the CPU seconds for a million messages, by run, without the warm-up."""
        return [sum(spent) for spent in zip(*self._spent, strict=True)][1:]

    def _measured(self, index: int) -> TimedOperation:
        async def operation(count: int, in_flight: int) -> float:
            before = self._cpu_seconds()
            seconds = await self._operations[index](count, in_flight)
            self._spent[index].append((self._cpu_seconds() - before) * MILLION / count)
            return seconds

        return operation

    def _cpu_seconds(self) -> float:
        return time.process_time() + self._contestant.server_cpu_seconds()


async def measure_disk(
    contestant: Contestant, operations: Sequence[TimedOperation], count: int
) -> dict[str, float]:
    """Return the MB on disk for a million messages, in a store that is still empty.

    `operations` are publish and consume, or round trips alone.
    """
    before = allocated_bytes(contestant.directory)
    grown = []
    for operation in operations:
        await operation(count, IN_FLIGHT)
        growth = allocated_bytes(contestant.directory) - before
        grown.append(growth / count * MILLION / 1e6)
    return {**({"stored_mb": grown[0]} if len(grown) > 1 else {}), "kept_mb": grown[-1]}


def allocated_bytes(directory: Path) -> int:
    """Return the blocks of all files below a directory, in bytes; files may disappear meanwhile."""
    total = 0
    waiting = [str(directory)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    total += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
        except FileNotFoundError:
            continue
    return total


def costs_table(costs: dict[str, dict[str, Any]], *, waiting: bool) -> Table:
    """Return the table; `waiting` adds the column for messages that were not acknowledged yet."""
    columns = ["cpu_seconds", *(["stored_mb"] if waiting else []), "kept_mb"]
    headings = {
        "cpu_seconds": "CPU seconds",
        "stored_mb": "MB on disk, pending",
        "kept_mb": "MB on disk, acknowledged",
    }
    rows = [[peer, *(_text(own.get(one)) for one in columns)] for peer, own in costs.items()]
    return Table(
        "Cost of a million messages of 512 B",
        ["peer", *(headings[one] for one in columns)],
        rows,
        f"at {IN_FLIGHT} in flight; CPU of client and server together, median of the runs",
    )


def _text(value: list[float] | float | None) -> str:
    if value is None:
        return "–"
    return number_text(median(value) if isinstance(value, list) else value)
