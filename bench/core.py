"""`./run bench core`: publish and consume, by the embedded relay and its peers.

Peers are Redis Streams, NATS JetStream, RabbitMQ, persist-queue and litequeue. With what a million
messages cost, and the cost of an admission alone.
"""

import argparse
from contextlib import AsyncExitStack
from pathlib import Path

from bench import rates
from bench.admission import measure_admission_us
from bench.costs import costs_table
from bench.embedded import EmbeddedRelay
from bench.peers import Peer, start_available
from bench.peers.nats_jetstream import NatsJetStream
from bench.peers.rabbitmq import RabbitQuorum
from bench.peers.redis_streams import RedisAwaited, RedisStreams
from bench.peers.sqlite_queues import LiteQueuePeer, PersistQueue
from bench.program import Benchmark, Found, run_one
from bench.tables import Table, compare
from bench.turns import Log

IN_FLIGHT = (1, 100, 1000)
RUN_SECONDS = 0.7
BASELINE = "Redis Streams"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add length and number of runs, and the choice of peers."""
    rates.add_options(parser, seconds=RUN_SECONDS)
    parser.add_argument("--only", help="measure only peers whose name contains this text")


def contestants(only: str | None = None) -> list[Peer]:
    """Return the relay's variants, each next to the peer it is compared with."""
    peers: list[Peer] = [
        EmbeddedRelay("journal", "fsync"),
        RedisAwaited(),
        EmbeddedRelay("journal", "fsync", many=True),
        RedisStreams(),
        RedisStreams(atomic=True),
        EmbeddedRelay("maildir", "fsync"),
        NatsJetStream(),
        NatsJetStream(atomic=True),
        RabbitQuorum(),
        PersistQueue(),
        LiteQueuePeer(),
        EmbeddedRelay("journal", "async"),
        EmbeddedRelay("maildir", "async"),
    ]
    return [peer for peer in peers if only is None or only.lower() in peer.name.lower()]


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Measure all peers in turns, and an admission alone."""
    async with AsyncExitStack() as stack:
        peers, missing = await start_available(contestants(options.only), scratch, stack)
        entries = [(peer, (peer.publish, peer.consume)) for peer in peers]
        names = ("publish", "consume")
        found = await rates.measure_rates(entries, names, IN_FLIGHT, options, log)
        syncing = [peer for peer in peers if isinstance(peer, EmbeddedRelay) and peer.durable]
        per_sync = {
            peer.name: {str(number): n for number, n in peer.publishes_per_commit.items()}
            for peer in syncing
        }
    log("admission alone")
    alone = measure_admission_us()
    return {**found, "publishes_per_sync": per_sync, "admission_us": alone, "missing": missing}


def tables(found: Found) -> list[Table]:
    """Return rates, costs, and the size of batches."""
    missing = found["missing"]
    numbers = [str(number) for number in IN_FLIGHT]
    syncs = [
        [name, *(f"{served[number]:,.0f}" for number in numbers)]
        for name, served in found["publishes_per_sync"].items()
    ]
    return [
        compare("Confirmed publishes per second", found["publish"], BASELINE, missing),
        compare("Leases and acknowledgements per second", found["consume"], BASELINE, missing),
        costs_table(found["costs"], waiting=True),
        Table("Publishes per sync", ["peer", *(f"{one} in flight" for one in numbers)], syncs),
        Table("Admission alone", ["", "µs"], [["one publish", f"{found['admission_us']:.1f}"]]),
    ]


BENCHMARK = Benchmark(
    "core",
    __doc__,
    measure,
    tables,
    ("--runs", "3", "--seconds", "0.06", "--warm-up", "50", "--fill", "300"),
    add_options,
)

if __name__ == "__main__":
    run_one(BENCHMARK)
