"""The program of one measurement: `python -m bench.pipeline.measure TASK ARGUMENTS`.

Prints one line of JSON: `seconds` and the results of the task. Imports only what is measured.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the task named by the first argument, with the JSON of the second."""
    task, arguments = sys.argv[1], json.loads(sys.argv[2])
    engine, _, job = task.partition(".")
    print(json.dumps(_ENGINES[engine](job, arguments)))


def _spark(job: str, arguments: dict[str, Any]) -> dict[str, Any]:
    from bench.pipeline import spark_engine

    return spark_engine.run(getattr(spark_engine, job), **arguments)


def _duckdb(job: str, arguments: dict[str, Any]) -> dict[str, Any]:
    from bench.pipeline import duckdb_engine

    return _timed(getattr(duckdb_engine, job), arguments)


def _polars(job: str, arguments: dict[str, Any]) -> dict[str, Any]:
    from bench.pipeline import polars_engine

    return _timed(getattr(polars_engine, job), arguments)


def _timed(job: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    begin = time.perf_counter()
    rows = job(**arguments)
    return {"seconds": time.perf_counter() - begin, "rows": rows}


def _sequential(job: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Replay one journal sequentially; reading it is timed separately."""
    from tests.pipeline.replay import sequential

    assert job == "replay"
    settings = arguments["settings"]
    begin = time.perf_counter()
    events = sequential.read_journal(Path(arguments["data"]))
    read = time.perf_counter()
    changes = None if settings is None else settings.encode()
    decisions = differences = 0
    for one in sequential.SequentialReplay(events, changes).decisions():
        decisions += 1
        differences += one.old_reason != one.new_reason
    return {
        "seconds": time.perf_counter() - read,
        "reading_seconds": read - begin,
        "rows": {"messages": decisions, "differences": differences},
    }


def _journal(job: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Write a journal; in its own process, so that the relay's memory is freed afterwards."""
    from bench.pipeline import journals

    data = Path(arguments.pop("data"))
    begin = time.perf_counter()
    made: journals.Journal = getattr(journals, job)(data, **arguments)
    described = {**made._asdict(), "data": str(data)}
    return {"seconds": time.perf_counter() - begin, "journal": described}


_ENGINES = {
    "spark": _spark,
    "duckdb": _duckdb,
    "polars": _polars,
    "sequential": _sequential,
    "journal": _journal,
}

if __name__ == "__main__":
    main()
