"""`./run bench pipeline`: ingest, build and backtest beside DuckDB, Polars and a sequential replay.

Each measurement runs in its own process; the whole run takes a long time.
"""

import argparse
from pathlib import Path

from bench.pipeline import rendering
from bench.pipeline.figures import Figure
from bench.pipeline.jobs import Bench
from bench.program import Benchmark, Found, run_one
from bench.turns import Log

SIZES = "825k,4m"
JOBS = ("ingest", "build", "backtest", "run", "trace", "payloads")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the sizes and the choice of jobs."""
    parser.add_argument(
        "--events",
        type=_sizes,
        default=SIZES,
        metavar="N,N",
        help="events for ingest and build, messages for backtest: 825k, 20m (%(default)s)",
    )
    parser.add_argument(
        "--only",
        type=_jobs,
        default=JOBS,
        metavar="JOB,JOB",
        help=f"run only these: {', '.join(JOBS)}",
    )
    parser.add_argument(
        "--alone",
        action="store_true",
        help="ingest and build with Waypost only, at sizes that the other engines do not hold",
    )


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Run the measurements; a failure is returned beside the results up to it."""
    figures: list[Figure] = []
    try:
        _run(options, scratch, log, figures)
    except RuntimeError as problem:
        return {**rendering.to_json(figures), "failure": str(problem)}
    return rendering.to_json(figures)


def _sizes(text: str) -> tuple[int, ...]:
    sizes = []
    for one in text.lower().replace("_", "").split(","):
        unit = {"k": 1000, "m": 1_000_000}.get(one[-1:], 1)
        sizes.append(int(one.rstrip("km")) * unit)
    if min(sizes) < 10_000:
        raise argparse.ArgumentTypeError("sizes below 10,000 are too small to measure")
    return tuple(sizes)


def _jobs(text: str) -> tuple[str, ...]:
    jobs = tuple(text.split(","))
    unknown = [job for job in jobs if job not in JOBS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown job {unknown[0]!r}; choose from {', '.join(JOBS)}"
        )
    return jobs


def _run(options: argparse.Namespace, scratch: Path, log: Log, figures: list[Figure]) -> None:
    """Run the chosen jobs, and add each result to `figures` as soon as it is there."""
    bench = Bench(scratch, options.events, log, alone=options.alone)
    jobs = {"ingest": bench.ingest, "build": bench.build}
    jobs |= {"backtest": bench.backtest, "run": bench.run}
    chosen = [job for name, job in jobs.items() if name in options.only]
    traffic = bench.make_traffic() if chosen else None
    for job in chosen:
        assert traffic is not None
        figures.extend(job(traffic))
    if "trace" in options.only:
        figures.extend(bench.trace())
    if "payloads" in options.only:
        figures.extend(bench.payloads())


BENCHMARK = Benchmark(
    "pipeline",
    __doc__,
    measure,
    rendering.tables,
    ("--events", "10k", "--only", "ingest"),
    add_options,
)

if __name__ == "__main__":
    run_one(BENCHMARK)
