"""`./run bench agents`: the cost of thousands of connected agents for a served relay.

One server, first with a few connected agents, then with thousands, all idle but two. Measures the
server's memory per connection, and the latency from `send` to its result and to the recipient.
"""

import argparse
import asyncio
import contextlib
import resource
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers import require
from bench.peers.served_relay import WaypostServer, open_config
from bench.program import Benchmark, Found, run_one
from bench.tables import Table
from bench.turns import Log

if TYPE_CHECKING:
    from waypost.client import Agent

FEW, MANY = 10, 5_000
CONNECTING_MAX = 50
MESSAGES = 400
SPARE_FILES = 200
FIGURES = ("answer_p50_ms", "answer_p99_ms", "arrival_p50_ms", "arrival_p99_ms")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Memory and latencies (ms, to the result and to the recipient) with `agents` connected."""

    agents: int
    memory_mb: float
    answer_p50_ms: float
    answer_p99_ms: float
    arrival_p50_ms: float
    arrival_p99_ms: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of agents."""
    parser.add_argument(
        "--agents", type=int, default=MANY, help="number of connected agents (%(default)s)"
    )


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Measure with few agents, then with many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.agents + SPARE_FILES
    require(hard >= wanted, f"{wanted:,} open files are needed, {hard:,} allowed: see ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    server = WaypostServer(open_config("journal"))
    await server.start(scratch)
    try:
        async with contextlib.AsyncExitStack() as stack:
            loads, connected = [], 0
            sender = await stack.enter_async_context(server.agent("agent.sender"))
            recipient = await stack.enter_async_context(server.agent("agent.recipient"))
            for number in (FEW, options.agents):
                while connected + 2 < number:
                    log(f"{connected + 2:,} of {number:,} agents connected")
                    batch = range(connected, min(connected + CONNECTING_MAX, number - 2))
                    idle = (server.agent(f"agent.idle-{one}") for one in batch)
                    await asyncio.gather(*map(stack.enter_async_context, idle))
                    connected += len(batch)
                log(f"latency with {number:,} agents")
                loads.append(await _measure(server, number, sender, recipient))
    finally:
        server.stop()
    few, many = loads
    connection_kb = (many.memory_mb - few.memory_mb) * 1024 / (many.agents - few.agents)
    return {"loads": [asdict(one) for one in loads], "connection_kb": connection_kb}


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


def tables(found: Found) -> list[Table]:
    """Return memory and latencies with few and with many agents."""
    rows = [
        [
            f"{one['agents']:,}",
            f"{one['memory_mb']:,.0f} MiB",
            *(f"{one[figure]:.2f}" for figure in FIGURES),
        ]
        for one in found["loads"]
    ]
    headings = ["agents", "server memory", "answer p50", "p99", "arrival p50", "p99"]
    caption = f"ms from send; {found['connection_kb']:.1f} KiB of memory for each connection"
    return [Table("Connected agents, all idle but two", headings, rows, caption)]


BENCHMARK = Benchmark("agents", __doc__, measure, tables, ("--agents", "300"), add_options)

if __name__ == "__main__":
    run_one(BENCHMARK)
