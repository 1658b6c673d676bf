"""`./run bench idle`: the memory of one idle endpoint.

A relay in a process of its own registers a few endpoints and then many more; the growth of its
resident memory is divided by their number. Several processes, one after the other.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
from pathlib import Path

from bench.peers import require
from bench.program import Benchmark, Found, run_one
from bench.publishing import open_relay
from bench.series import median, ratio_text
from bench.tables import Table
from bench.turns import Log

FEW = 100
ENDPOINTS = 100_000
RUNS = 3
PROGRAM = """
import asyncio, sys
from pathlib import Path
from bench.idle import register_endpoints
asyncio.run(register_endpoints(Path(sys.argv[1]), int(sys.argv[2])))
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of endpoints and of processes."""
    parser.add_argument(
        "--endpoints", type=int, default=ENDPOINTS, help="idle endpoints (%(default)s)"
    )
    parser.add_argument("--runs", type=int, default=RUNS, help="number of runs (%(default)s)")


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Measure in processes of their own."""
    runs = []
    for run in range(options.runs):
        log(f"{options.endpoints:,} endpoints, run {run + 1} of {options.runs}")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            str(scratch),
            str(options.endpoints),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        require(process.returncode == 0, "the relay with idle endpoints failed")
        few, many = json.loads(output)
        runs.append((many - few) / options.endpoints / 1024)
    return {"endpoints": options.endpoints, "runs_kb": runs, "endpoint_kb": median(runs)}


async def register_endpoints(scratch: Path, number: int) -> None:
    """Print the memory of this process with few and with `number` more idle endpoints, in bytes."""
    found = []
    async with open_relay(scratch) as (relay, _):
        for first, last in ((0, FEW), (FEW, FEW + number)):
            for index in range(first, last):
                relay.register_endpoint(f"agent.idle-{index}")
            await relay.idle()
            gc.collect()
            found.append(resident_bytes())
    print(json.dumps(found))


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def tables(found: Found) -> list[Table]:
    """Return the memory of one endpoint."""
    row = [f"{found['endpoints']:,}", ratio_text(found["runs_kb"])]
    return [Table("Memory of an idle endpoint", ["endpoints", "KB for each"], [row])]


BENCHMARK = Benchmark(
    "idle", __doc__, measure, tables, ("--endpoints", "20000", "--runs", "1"), add_options
)

if __name__ == "__main__":
    run_one(BENCHMARK)
