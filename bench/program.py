"""A benchmark as a value, and the program that runs one of them or all.

Rule 1  A benchmark returns plain JSON values; tables and plots are drawn from those alone, so that
        they can be drawn again from a file.
Rule 2  The results file is replaced after each benchmark: what was measured survives Ctrl-C and a
        benchmark that fails.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench.turns import Log
from bench.workload import PAYLOAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.tables import Table

FORMAT = 1
RESULTS_DIR = Path("bench/results")

Found = dict[str, Any]
"""What a benchmark measured, as JSON values. `missing` has the peers that could not be had."""


def no_options(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One measure: how to take it, and how to show it.

    `quick` are the arguments of a small version. One that starts for longer than it measures is
    not `in_quick_run`: a quick run of everything leaves it out unless it is named.
    """

    name: str
    description: str
    measure: Callable[[argparse.Namespace, Path, Log], Coroutine[Any, Any, Found]]
    tables: "Callable[[Found], list[Table]]"
    quick: Sequence[str]
    add_options: Callable[[argparse.ArgumentParser], None] = no_options
    in_quick_run: bool = True

    def options(self, arguments: Sequence[str], *, quick: bool = False) -> argparse.Namespace:
        """Parse the arguments of this benchmark alone."""
        parser = argparse.ArgumentParser(
            prog=f"./run bench {self.name}", description=self.description
        )
        add_options(parser)
        self.add_options(parser)
        is_quick = quick or "--quick" in arguments
        return parser.parse_args([*(self.quick if is_quick else ()), *arguments])


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every benchmark and the whole run have."""
    parser.add_argument("--quick", action="store_true", help="a small version: rough figures")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path.cwd(),
        help="directory for the files of all peers, on the disk to measure (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--output",
        type=Path,
        help=f"the results file (default: a new one in {RESULTS_DIR})",
    )


def run_one(benchmark: Benchmark) -> None:
    """Run the program of one benchmark."""
    options = benchmark.options(sys.argv[1:])
    run([benchmark], options, lambda _: options)


def run(
    benchmarks: Sequence[Benchmark],
    options: argparse.Namespace,
    options_of: Callable[[Benchmark], argparse.Namespace],
) -> None:
    """Run benchmarks, write the results file, and print what it holds.

    A benchmark that fails is recorded and the next one runs; the exit status is then 1.
    """
    from bench.report import show

    results = new_results(quick=options.quick)
    path: Path = options.output or RESULTS_DIR / f"{results['started']}.json".replace(":", "")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        for benchmark in benchmarks:
            with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.data_dir) as scratch:
                found = _measured(benchmark, options_of(benchmark), Path(scratch))
            results["benchmarks"][benchmark.name] = found
            write_results(path, results)
    except KeyboardInterrupt:
        print("interrupted: the results are incomplete", file=sys.stderr)
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)
    print(f"results: {path}", file=sys.stderr)
    if len(failed(results)) or len(results["benchmarks"]) < len(benchmarks):
        sys.exit(1)


def _measured(benchmark: Benchmark, options: argparse.Namespace, scratch: Path) -> Found:
    begin = time.perf_counter()
    with _progress(benchmark.name) as log:
        try:
            found = asyncio.run(benchmark.measure(options, scratch, log))
        except Exception as problem:
            traceback.print_exc()
            found = {"failure": f"{type(problem).__name__}: {problem}"}
    seconds = time.perf_counter() - begin
    outcome = "failed" if "failure" in found else "done"
    print(f"{benchmark.name}: {outcome} in {seconds:.0f} s", file=sys.stderr, flush=True)
    return {"seconds": seconds, **found}


@contextmanager
def _progress(name: str) -> "Iterator[Log]":
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{name}: starting")
        yield lambda text: progress.update(task, description=f"{name}: {text}")


def new_results(*, quick: bool) -> dict[str, Any]:
    """Return results without benchmarks: when, on which machine, by which version."""
    return {
        "format": FORMAT,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "payload_bytes": PAYLOAD_BYTES,
        "machine": {
            "system": platform.system(),
            "release": platform.release(),
            "architecture": platform.machine(),
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
        },
        "benchmarks": {},
    }


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Replace the results file."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(results, indent=1) + "\n")
    new.replace(path)


def read_results(path: Path) -> dict[str, Any]:
    """Read a results file; `SystemExit` with the reason if it is none."""
    try:
        results = json.loads(path.read_bytes())
    except (OSError, ValueError) as problem:
        raise SystemExit(f"{path} is no results file: {problem}") from None
    if not isinstance(results, dict) or results.get("format") != FORMAT:
        raise SystemExit(f"{path} is no results file of format {FORMAT}: run the benchmarks again")
    return results


def failed(results: dict[str, Any]) -> dict[str, str]:
    """Return the failures by name of the benchmark."""
    return {
        name: found["failure"]
        for name, found in results["benchmarks"].items()
        if "failure" in found
    }


def missing(results: dict[str, Any]) -> dict[str, str]:
    """Return the reason for each peer that could not be had."""
    return {
        peer: reason
        for found in results["benchmarks"].values()
        for peer, reason in found.get("missing", {}).items()
    }
