"""Reads a Delta table with Polars again and again, in another process.

Run as `python -m tests.pipeline.delta.looping_reader TABLE COLUMN`, it prints a line for each read
and ends when its input does.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import polars

from tests.eventually import eventually_blocking

PATIENCE_S = 120.0
_PAUSE_S = 0.05
"""Between two reads. Without it, a reader takes a whole core from the jobs it watches."""


class Read(msgspec.Struct, frozen=True):
    """The number of rows, and least, most and total of a column; or an error."""

    rows: int = 0
    least: int | None = None
    most: int | None = None
    total: int = 0
    error: str = ""


def holds_each_event_once(read: Read) -> bool:
    """Return whether the rows of a column `seq` are all numbers from 1 to the largest, once."""
    rows = read.rows
    return (read.least, read.most, read.total) == (1, rows, rows * (rows + 1) // 2)


class Reads:
    """The lines of a reader."""

    def __init__(self, output: Path) -> None:
        self._output = output

    def all(self) -> list[Read]:
        lines = self._output.read_bytes().splitlines(keepends=True)
        return [msgspec.json.decode(line, type=Read) for line in lines if line.endswith(b"\n")]

    def wait_for_more(self) -> None:
        """Wait until a read that begins after this call has ended."""
        wanted = len(self.all()) + 2
        eventually_blocking(lambda: len(self.all()) >= wanted, "reads", timeout_s=PATIENCE_S)


@contextmanager
def looping_reader(table: Path, column: str, output: Path) -> Iterator[Reads]:
    """Let another process read `table` during the block; its lines go to `output`."""
    command = [sys.executable, "-m", __name__, str(table), column]
    with output.open("w") as lines:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=lines)
    try:
        reads = Reads(output)
        reads.wait_for_more()
        yield reads
        reads.wait_for_more()
        process.communicate(timeout=PATIENCE_S)  # ends its input
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def read(table: str, column: str) -> dict[str, object]:
    """Read the table once; every error counts."""
    values = polars.col(column)
    try:
        rows = polars.scan_delta(table).select(
            rows=polars.len(), least=values.min(), most=values.max(), total=values.sum()
        )
        return rows.collect().row(0, named=True)
    except Exception as problem:
        return {"error": f"{type(problem).__name__}: {problem}"}


def main(table: str, column: str) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.wait(_PAUSE_S):
        sys.stdout.write(json.dumps(read(table, column)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
