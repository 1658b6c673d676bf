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

SIZES = (1_000_000, 4_000_000, 20_000_000)
JOBS = ("ingest", "build", "backtest", "payloads")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the sizes and the choice of jobs."""
    parser.add_argument(
        "--sizes",
        type=_sizes,
        default=SIZES,
        metavar="N,N",
        help="events for ingest and build, messages for backtest (%(default)s)",
    )
    parser.add_argument(
        "--only",
        type=_jobs,
        default=JOBS,
        metavar="JOB,JOB",
        help=f"run only these: {', '.join(JOBS)}",
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
    sizes = tuple(int(one.replace("_", "")) for one in text.split(","))
    if min(sizes) < 10_000:
        raise argparse.ArgumentTypeError("sizes below 10,000 are too small to measure")
    return sizes


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
    bench = Bench(scratch, options.sizes, log)
    if set(options.only) - {"payloads"}:
        traffic = bench.make_traffic()
        for job in ("ingest", "build", "backtest"):
            if job in options.only:
                figures.extend(getattr(bench, job)(traffic))
    if "payloads" in options.only:
        figures.extend(bench.payloads())


BENCHMARK = Benchmark(
    "pipeline",
    __doc__,
    measure,
    rendering.tables,
    ("--sizes", "10_000", "--only", "ingest"),
    add_options,
)

if __name__ == "__main__":
    run_one(BENCHMARK)
