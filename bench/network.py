"""`./run bench network`: durable round trips through a served relay, and its peers.

Peers are NATS JetStream, with a sync for each message and with its default, and RabbitMQ.
"""

import argparse
from contextlib import AsyncExitStack
from pathlib import Path

from bench import rates
from bench.costs import costs_table
from bench.peers import start_available
from bench.peers.nats_jetstream import SYNC_DEFAULT
from bench.peers.nats_round_trips import NatsRoundTrips
from bench.peers.rabbitmq import RabbitRoundTrips
from bench.peers.served_relay import ServedRelay
from bench.program import Benchmark, Found, run_one
from bench.round_trips import RoundTripPeer
from bench.tables import Table, compare
from bench.turns import Log

IN_FLIGHT = (1, 100)
RUN_SECONDS = 1.0
BASELINE = "NATS JetStream"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add length and number of runs."""
    rates.add_options(parser, seconds=RUN_SECONDS)


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
    async with AsyncExitStack() as stack:
        peers, missing = await start_available(contestants(), scratch, stack)
        entries = [(peer, [peer.round_trips]) for peer in peers]
        found = await rates.measure_rates(entries, ["round_trips"], IN_FLIGHT, options, log)
    return {**found, "missing": missing}


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
