"""Reads a Delta table with Polars again and again, and prints a line for each read.

Run as `python -m tests.pipeline.delta.looping_reader TABLE`; it ends when its input does.
"""

import json
import sys
import threading

import polars


def read(table: str) -> dict[str, object]:
    """Return the number of rows and the range of `n`, or the error."""
    try:
        rows = polars.scan_delta(table).select(
            rows=polars.len(), least=polars.col("n").min(), most=polars.col("n").max()
        )
        return rows.collect().row(0, named=True)
    except Exception as problem:  # every error counts
        return {"error": f"{type(problem).__name__}: {problem}"}


def main(table: str) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        sys.stdout.write(json.dumps(read(table)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
