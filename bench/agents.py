"""`./run bench agents`: the cost of thousands of connected agents for a served relay.

One server, first with a few connected agents, then with thousands, all idle but two. Measures the
server's memory per connection, and the latency from `send` to its result and to the recipient.
"""

import argparse
import asyncio
import contextlib
import json
import resource
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.peers import require
from bench.peers.served_relay import WaypostServer, open_config

if TYPE_CHECKING:
    from waypost.client import Agent

FEW, MANY = 10, 5_000
CONNECTING_MAX = 50
MESSAGES = 400
SPARE_FILES = 200


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Memory and latencies (ms, to the result and to the recipient) with `agents` connected."""

    agents: int
    memory_mb: float
    answer_p50_ms: float
    answer_p99_ms: float
    arrival_p50_ms: float
    arrival_p99_ms: float


def main() -> None:
    """Measure, then print a table or JSON."""
    parser = argparse.ArgumentParser(prog="./run bench agents", description=__doc__)
    parser.add_argument(
        "--agents", type=int, default=MANY, help="number of connected agents (%(default)s)"
    )
    parser.add_argument(
        "--data-dir", type=Path, default=Path.cwd(), help="directory for the relay's files"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.agents + SPARE_FILES
    require(hard >= wanted, f"{wanted:,} open files are needed, {hard:,} allowed: see ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.data_dir) as scratch:
        loads = asyncio.run(_run(options.agents, Path(scratch)))
    per_connection = (loads[1].memory_mb - loads[0].memory_mb) * 1024 / (options.agents - FEW)
    if options.json:
        found = {"crowds": [asdict(one) for one in loads], "kb_per_connection": per_connection}
        print(json.dumps(found, indent=2))
    else:
        _show(loads, per_connection)


async def _run(many: int, scratch: Path) -> list[LoadResult]:
    server = WaypostServer(open_config("journal"))
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    await server.start(scratch)
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            async with contextlib.AsyncExitStack() as stack:
                task = progress.add_task("connecting agents", total=many)
                loads, connected = [], 0
                sender = await stack.enter_async_context(server.agent("agent.sender"))
                recipient = await stack.enter_async_context(server.agent("agent.recipient"))
                for wanted in (FEW, many):
                    while connected + 2 < wanted:
                        batch = range(connected, min(connected + CONNECTING_MAX, wanted - 2))
                        await asyncio.gather(
                            *(
                                stack.enter_async_context(server.agent(f"agent.idle-{number}"))
                                for number in batch
                            )
                        )
                        connected += len(batch)
                        progress.update(task, completed=connected + 2)
                    loads.append(await _measure(server, wanted, sender, recipient))
                return loads
    finally:
        server.stop()


async def _measure(
    server: WaypostServer, agents: int, sender: "Agent", recipient: "Agent"
) -> LoadResult:
    answers: list[float] = []
    arrivals: list[float] = []
    for number in range(MESSAGES + 50):
        begin = time.perf_counter()
        arriving = asyncio.create_task(recipient.receive(timeout=30))
        await sender.send("agent.recipient", {"number": number})
        answered = time.perf_counter()
        message = await arriving
        arrived = time.perf_counter()
        await message.ack()
        if number >= 50:  # the first 50 warm up
            answers.append((answered - begin) * 1000)
            arrivals.append((arrived - begin) * 1000)
    return LoadResult(
        agents, server.memory_bytes / 2**20, *_percentiles(answers), *_percentiles(arrivals)
    )


def _percentiles(times: list[float]) -> tuple[float, float]:
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def _show(loads: list[LoadResult], per_connection: float) -> None:
    shown = Table(title="Connected agents, all idle but two", caption="ms from send")
    for heading in ("agents", "server memory", "answer p50", "p99", "arrival p50", "p99"):
        shown.add_column(heading, justify="right")
    for one in loads:
        shown.add_row(
            f"{one.agents:,}",
            f"{one.memory_mb:,.0f} MiB",
            f"{one.answer_p50_ms:.2f}",
            f"{one.answer_p99_ms:.2f}",
            f"{one.arrival_p50_ms:.2f}",
            f"{one.arrival_p99_ms:.2f}",
        )
    Console().print(shown)
    Console().print(f"{per_connection:.1f} KiB of server memory per connection", highlight=False)


if __name__ == "__main__":
    main()
