"""`./run bench pipeline`: ingest, build and backtest beside DuckDB, Polars and a plain replay.

All in one run, each measurement in a process of its own; it takes a long while.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from bench.pipeline import shown
from bench.pipeline.figures import Figure
from bench.pipeline.jobs import Bench

SIZES = (1_000_000, 4_000_000, 20_000_000)
JOBS = ("ingest", "build", "backtest", "payloads")


def main() -> None:
    """Measure, then print tables or JSON."""
    options = _parse()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.data_dir) as scratch:
        figures: list[Figure] = []
        try:
            _run(options, Path(scratch), figures)
        except RuntimeError as problem:
            failure = str(problem)
        except KeyboardInterrupt:
            failure = "stopped: this is not all of it"
        else:
            failure = ""
    if options.json:
        print(json.dumps(shown.to_json(figures), indent=2))
    else:
        shown.show(figures)
    if failure:  # what was measured before it is worth having all the same
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
        "--only", type=_jobs, default=JOBS, metavar="JOB,JOB", help=f"of {', '.join(JOBS)}"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path.cwd(),
        help="where journals and lakes are put; some 15 GB for the largest size (%(default)s)",
    )
    return parser.parse_args()


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(one.replace("_", "")) for one in text.split(","))
    if min(sizes) < 10_000:
        raise argparse.ArgumentTypeError("at least 10,000, or nothing can be told")
    return sizes


def _jobs(text: str) -> tuple[str, ...]:
    jobs = tuple(text.split(","))
    unknown = [job for job in jobs if job not in JOBS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no {unknown[0]}; there are {', '.join(JOBS)}")
    return jobs


def _run(options: argparse.Namespace, scratch: Path, figures: list[Figure]) -> None:
    """Measure what was asked for, and put it into `figures` as it comes."""
    begin = time.perf_counter()

    def say(text: str) -> None:
        minutes, seconds = divmod(int(time.perf_counter() - begin), 60)
        print(f"{minutes:3d}:{seconds:02d}  {text}", file=sys.stderr, flush=True)

    bench = Bench(scratch, options.sizes, say)
    if set(options.only) - {"payloads"}:
        traffic = bench.make_traffic()
        for job in ("ingest", "build", "backtest"):
            if job in options.only:
                figures.extend(getattr(bench, job)(traffic))
    if "payloads" in options.only:
        figures.extend(bench.payloads())


if __name__ == "__main__":
    main()
