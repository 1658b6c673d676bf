"""`./run bench pipeline`: ingest, build and backtest beside DuckDB, Polars and a sequential replay.

Each measurement runs in its own process; the whole run takes a long time.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from bench.pipeline import rendering
from bench.pipeline.figures import Figure
from bench.pipeline.jobs import Bench

SIZES = (1_000_000, 4_000_000, 20_000_000)
JOBS = ("ingest", "build", "backtest", "payloads")


def main() -> None:
    """Run the measurements, then print tables or JSON."""
    options = _parse()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.data_dir) as scratch:
        figures: list[Figure] = []
        try:
            _run(options, Path(scratch), figures)
        except RuntimeError as problem:
            failure = str(problem)
        except KeyboardInterrupt:
            failure = "interrupted: the results are incomplete"
        else:
            failure = ""
    if options.json:
        print(json.dumps(rendering.to_json(figures), indent=2))
    else:
        rendering.show(figures)
    if failure:  # after the results up to it
        sys.exit(failure)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench pipeline", description=__doc__)
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
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path.cwd(),
        help="directory for journals and lakes; the largest size needs 15 GB (%(default)s)",
    )
    return parser.parse_args()


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


def _run(options: argparse.Namespace, scratch: Path, figures: list[Figure]) -> None:
    """Run the chosen jobs, and add each result to `figures` as soon as it is there."""
    begin = time.perf_counter()

    def log(text: str) -> None:
        minutes, seconds = divmod(int(time.perf_counter() - begin), 60)
        print(f"{minutes:3d}:{seconds:02d}  {text}", file=sys.stderr, flush=True)

    bench = Bench(scratch, options.sizes, log)
    if set(options.only) - {"payloads"}:
        traffic = bench.make_traffic()
        for job in ("ingest", "build", "backtest"):
            if job in options.only:
                figures.extend(getattr(bench, job)(traffic))
    if "payloads" in options.only:
        figures.extend(bench.payloads())


if __name__ == "__main__":
    main()
