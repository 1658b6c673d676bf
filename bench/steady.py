"""`./run bench steady`: a served relay at 80 % of its peak, with agents coming and going.

First the peak, in round trips at 100 in flight. Then messages at a fixed rate, while other agents
connect, send a message to themselves, receive it and disconnect. Memory of the relay and latency
from due to arrived are sampled all the time: both should stay flat.
"""

import argparse
import asyncio
from itertools import count
from pathlib import Path

from bench.latency import measure_peaks
from bench.pace import pace
from bench.peers.served_relay import ServedRelay, WaypostServer
from bench.program import Benchmark, Found, run_one
from bench.series import median, number_text, percentile
from bench.tables import Table
from bench.turns import Log

MINUTES = 1.0
SHARE = 0.8
SAMPLES_MIN = 10
SAMPLE_SECONDS = 5.0
PEAK_RUNS = 3
PEAK_SECONDS = 2.0
VISITORS = 4
"""Agents that come and go at the same time."""
VISIT_SECONDS = 0.5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the length."""
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="length of the load (%(default)s)"
    )


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Measure the peak, then memory and latency over time."""
    seconds = options.minutes * 60
    step = min(SAMPLE_SECONDS, seconds / SAMPLES_MIN)
    peer = ServedRelay("journal")
    await peer.start(scratch)
    visitors: list[asyncio.Task[None]] = []
    try:
        short = argparse.Namespace(runs=PEAK_RUNS, seconds=min(PEAK_SECONDS, step))
        peak = median((await measure_peaks([peer], short, log))[peer.name])
        visits = count()
        visitors += [asyncio.create_task(_visit(peer.server, visits)) for _ in range(VISITORS)]
        samples = []
        for number in range(1, max(SAMPLES_MIN, round(seconds / step)) + 1):
            log(f"{number * step:,.0f} of {seconds:,.0f} s at {peak * SHARE:,.0f} messages/s")
            latencies = (await pace(peer, peak * SHARE, step)).arrived_ms
            samples.append(
                {
                    "at_s": number * step,
                    "memory_mb": peer.server.memory_bytes / 1e6,
                    "p50_ms": median(latencies),
                    "p99_ms": percentile(latencies, 99),
                }
            )
            for visitor in visitors:
                if visitor.done():
                    visitor.result()  # raises what ended it
    finally:
        for visitor in visitors:
            visitor.cancel()
        await asyncio.gather(*visitors, return_exceptions=True)
        await peer.stop()
    return {"peak": peak, "rate": peak * SHARE, "visits": next(visits), "samples": samples}


async def _visit(server: WaypostServer, visits: "count[int]") -> None:
    """Come and go until cancelled, each time as another agent."""
    while True:
        subject = f"agent.visitor-{next(visits)}"
        async with server.agent(subject) as agent:
            await agent.send(subject, {"note": "to myself"})
            message = await agent.receive(timeout=60)
            await message.ack()
        await asyncio.sleep(VISIT_SECONDS)


def tables(found: Found) -> list[Table]:
    """Return both halves of the time."""
    samples = found["samples"]
    middle = len(samples) // 2
    rows = [
        [
            name,
            *(number_text(median([one[kind] for one in half])) for kind in _KINDS),
        ]
        for name, half in (("first", samples[:middle]), ("second", samples[middle:]))
    ]
    return [
        Table(
            f"Steady load for {samples[-1]['at_s']:,.0f} s",
            ["half", "memory, MB", "arrived p50, ms", "p99, ms"],
            rows,
            f"{found['rate']:,.0f} messages/s, {SHARE:.0%} of the peak;"
            f" {found['visits']:,} agents came and went",
        )
    ]


_KINDS = ("memory_mb", "p50_ms", "p99_ms")

BENCHMARK = Benchmark("steady", __doc__, measure, tables, ("--minutes", "0.08"), add_options)

if __name__ == "__main__":
    run_one(BENCHMARK)
