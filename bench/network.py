"""`./run bench network`: durable round trips through a served relay, and its peers.

Peers are NATS JetStream, with a sync for each message and with its default, and RabbitMQ.
"""

import argparse
from contextlib import AsyncExitStack
from pathlib import Path

from bench.costs import FILL, CpuMeter, costs_table, measure_disk
from bench.costs import IN_FLIGHT as COSTS_IN_FLIGHT
from bench.peers import start_available
from bench.peers.nats_jetstream import SYNC_DEFAULT
from bench.peers.nats_round_trips import NatsRoundTrips
from bench.peers.rabbitmq import RabbitRoundTrips
from bench.peers.served_relay import ServedRelay
from bench.program import Benchmark, Found, run_one
from bench.round_trips import RoundTripPeer
from bench.tables import Table, compare
from bench.turns import Log, Turns

IN_FLIGHT = (1, 100)
RUNS = 5
RUN_SECONDS = 1.0
BASELINE = "NATS JetStream"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add length and number of runs."""
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS, help="length of one run")
    parser.add_argument("--runs", type=int, default=RUNS, help="number of runs (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=500, help="messages before (%(default)s)")
    parser.add_argument(
        "--fill", type=int, default=FILL, help="messages to measure bytes on disk (%(default)s)"
    )


def contestants() -> list[RoundTripPeer]:
    """Return the relay with both storages, and its peers."""
    return [
        ServedRelay("journal"),
        ServedRelay("maildir"),
        NatsRoundTrips(),
        NatsRoundTrips(sync_interval=SYNC_DEFAULT),
        RabbitRoundTrips(),
    ]


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Measure all peers in turns."""
    found: Found = {"round_trips": {}, "costs": {}}
    turns = Turns(options.runs, options.seconds, log, options.warm_up)
    async with AsyncExitStack() as stack:
        peers, found["missing"] = await start_available(contestants(), scratch, stack)
        names = [peer.name for peer in peers]
        for peer in peers:
            log(f"{peer.name}: bytes on disk")
            disk = await measure_disk(peer, [peer.round_trips], options.fill)
            found["costs"][peer.name] = disk
        for in_flight in IN_FLIGHT:
            meters = [CpuMeter(peer, peer.round_trips) for peer in peers]
            rates = await turns.take(names, [one.operations() for one in meters], in_flight)
            found["round_trips"][str(in_flight)] = {
                name: own for name, [own] in zip(names, rates, strict=True)
            }
            if in_flight == COSTS_IN_FLIGHT:
                for name, meter in zip(names, meters, strict=True):
                    found["costs"][name]["cpu_seconds"] = meter.seconds()
    return found


def tables(found: Found) -> list[Table]:
    """Return rates and costs."""
    title = "Durable round trips per second: publish, deliver, confirm"
    return [
        compare(title, found["round_trips"], BASELINE, found["missing"]),
        costs_table(found["costs"], waiting=False),
    ]


BENCHMARK = Benchmark(
    "network",
    __doc__,
    measure,
    tables,
    ("--runs", "3", "--seconds", "0.15", "--warm-up", "50", "--fill", "500"),
    add_options,
)

if __name__ == "__main__":
    run_one(BENCHMARK)
