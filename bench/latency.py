"""`./run bench latency`: latency of a served relay at half its peak rate, and of NATS JetStream.

First the peak of each: round trips at 100 in flight. Then both send at a fixed rate: each at half
of its own peak, and each at the rate of the other. NATS syncs each message, as Waypost does.
"""

import argparse
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.pace import pace
from bench.peers import start_available
from bench.peers.nats_round_trips import NatsRoundTrips
from bench.peers.served_relay import ServedRelay
from bench.program import Benchmark, Found, run_one
from bench.round_trips import PacedPeer
from bench.series import median, number_text, percentile, rate_text
from bench.tables import Table
from bench.turns import Log, Turns

RUNS = 5
RUN_SECONDS = 2.0
PEAK_IN_FLIGHT = 100
FIGURES = ("arrived_p50_ms", "arrived_p99_ms", "confirmed_p50_ms", "confirmed_p99_ms")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add length and number of runs."""
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS, help="length of one run")
    parser.add_argument("--runs", type=int, default=RUNS, help="number of runs (%(default)s)")


def contestants() -> list[PacedPeer]:
    """Return the relay and its peer."""
    return [ServedRelay("journal"), NatsRoundTrips()]


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Measure the peaks, then latencies in turns."""
    async with AsyncExitStack() as stack:
        peers, missing = await start_available(contestants(), scratch, stack)
        peaks = await measure_peaks(peers, options, log)
        paces = [
            (peer, other, median(peaks[other.name]) / 2)
            for peer in peers
            for other in sorted(peers, key=lambda one: one is not peer)
        ]
        found: list[dict[str, Any]] = [
            {"peer": peer.name, "half_of": other.name, "rate": rate, **{one: [] for one in FIGURES}}
            for peer, other, rate in paces
        ]
        for run in range(options.runs):
            pairs = list(zip(found, paces, strict=True))
            first = run % len(pairs)
            for result, (peer, other, rate) in pairs[first:] + pairs[:first]:
                log(f"{peer.name}, half the peak of {other.name}, run {run + 1} of {options.runs}")
                latencies = await pace(peer, rate, options.seconds)
                for kind in ("arrived", "confirmed"):
                    times = getattr(latencies, f"{kind}_ms")
                    result[f"{kind}_p50_ms"].append(median(times))
                    result[f"{kind}_p99_ms"].append(percentile(times, 99))
    return {"peaks": peaks, "paces": found, "missing": missing}


async def measure_peaks(
    peers: list[PacedPeer], options: argparse.Namespace, log: Log
) -> dict[str, list[float]]:
    """Return the round trips per second of each peer, by run."""
    turns = Turns(options.runs, options.seconds / 2, log, PEAK_IN_FLIGHT)
    names = [peer.name for peer in peers]
    rates = await turns.take(names, [(peer.round_trips,) for peer in peers], PEAK_IN_FLIGHT)
    return {name: own for name, [own] in zip(names, rates, strict=True)}


def tables(found: Found) -> list[Table]:
    """Return the latencies, and the peaks they relate to."""
    rows = [
        [
            one["peer"],
            "its own" if one["half_of"] == one["peer"] else one["half_of"],
            number_text(one["rate"]),
            *(rate_text(one[figure]) for figure in FIGURES),
        ]
        for one in found["paces"]
    ]
    rows += [[peer, reason, "", "", "", "", ""] for peer, reason in found["missing"].items()]
    peaks = ", ".join(f"{peer} {rate_text(runs)}" for peer, runs in found["peaks"].items())
    return [
        Table(
            "Latency at half the peak rate, ms",
            [
                "peer",
                "half the peak of",
                "messages/s",
                "arrived p50",
                "p99",
                "confirmed p50",
                "p99",
            ],
            rows,
            f"median ± half the spread of the runs; peaks, in round trips per second: {peaks}",
        )
    ]


BENCHMARK = Benchmark(
    "latency", __doc__, measure, tables, ("--runs", "2", "--seconds", "0.4"), add_options
)

if __name__ == "__main__":
    run_one(BENCHMARK)
