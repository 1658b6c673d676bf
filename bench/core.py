"""`./run bench core`: publish and consume, by the embedded relay and its peers.

Peers are Redis Streams, NATS JetStream, RabbitMQ, persist-queue and litequeue. With what a million
messages cost, and the cost of an admission alone.
"""

import argparse
from contextlib import AsyncExitStack
from pathlib import Path

from bench.admission import measure_admission_us
from bench.costs import FILL, CpuMeter, costs_table, measure_disk
from bench.costs import IN_FLIGHT as COSTS_IN_FLIGHT
from bench.embedded import EmbeddedRelay
from bench.peers import Peer, start_available
from bench.peers.nats_jetstream import NatsJetStream
from bench.peers.rabbitmq import RabbitQuorum
from bench.peers.redis_streams import RedisAwaited, RedisStreams
from bench.peers.sqlite_queues import LiteQueuePeer, PersistQueue
from bench.program import Benchmark, Found, run_one
from bench.tables import Table, compare
from bench.turns import Log, Turns

IN_FLIGHT = (1, 100, 1000)
RUNS = 5
RUN_SECONDS = 0.7
BASELINE = "Redis Streams"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add length and number of runs, and the choice of peers."""
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS, help="length of one run")
    parser.add_argument("--runs", type=int, default=RUNS, help="number of runs (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=500, help="messages before (%(default)s)")
    parser.add_argument(
        "--fill", type=int, default=FILL, help="messages to measure bytes on disk (%(default)s)"
    )
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
    """Measure all peers in turns."""
    found: Found = {"publish": {}, "consume": {}, "costs": {}, "publishes_per_sync": {}}
    turns = Turns(options.runs, options.seconds, log, options.warm_up)
    async with AsyncExitStack() as stack:
        peers, found["missing"] = await start_available(contestants(options.only), scratch, stack)
        names = [peer.name for peer in peers]
        for peer in peers:
            log(f"{peer.name}: bytes on disk")
            operations = (peer.publish, peer.consume)
            found["costs"][peer.name] = await measure_disk(peer, operations, options.fill)
        for in_flight in IN_FLIGHT:
            meters = [CpuMeter(peer, peer.publish, peer.consume) for peer in peers]
            taken = await turns.take(names, [one.operations() for one in meters], in_flight)
            rates = dict(zip(names, taken, strict=True))
            found["publish"][str(in_flight)] = {name: own[0] for name, own in rates.items()}
            found["consume"][str(in_flight)] = {name: own[1] for name, own in rates.items()}
            if in_flight == COSTS_IN_FLIGHT:
                for name, meter in zip(names, meters, strict=True):
                    found["costs"][name]["cpu_seconds"] = meter.seconds()
        for peer in peers:
            if isinstance(peer, EmbeddedRelay) and peer.durable:
                by_number = {str(number): n for number, n in peer.publishes_per_commit.items()}
                found["publishes_per_sync"][peer.name] = by_number
    log("admission alone")
    found["admission_us"] = measure_admission_us()
    return found


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
    ("--runs", "3", "--seconds", "0.08", "--warm-up", "50", "--fill", "500"),
    add_options,
)

if __name__ == "__main__":
    run_one(BENCHMARK)
