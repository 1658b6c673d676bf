"""`./run bench cluster`: a relay on a replicated log, beside one relay and beside plain JetStream.

Publishes go to agents that are away; round trips are delivered and acknowledged. All NATS servers
sync each message. CPU time is by kind of process. Then one node with few and with many partitions:
what they cost without traffic, and for each message.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from bench.peers.cluster_nodes import NODES, SERVERS, ClusterPeer
from bench.peers.nats_replicated import PlainJetStream
from bench.peers.served_relay import ServedRelay
from bench.program import Benchmark, Found, run_one
from bench.series import median, number_text, rate_text
from bench.tables import Table, compare
from bench.turns import Log, TimedOperation, Turns

RUNS = 5
RUN_SECONDS = 1.0
IN_FLIGHT = (1, 100)
COST_IN_FLIGHT = 100
PARTITIONS = (1, 4, 16, 64)
IDLE_SECONDS = 20.0
BASELINE = "JetStream alone, 3 servers"
CLIENT = "clients"
COPIED_S = 0.5
"""After which followers have copied what they had not yet at the end of a run."""
OPERATIONS = ("publishes", "round_trips")


class ClusterContestant(Protocol):
    """A peer of this benchmark; `cpu_seconds` is by kind of process."""

    name: str

    async def start(self, data_dir: Path) -> None: ...
    async def stop(self) -> None: ...
    def available(self) -> str | None: ...
    def cpu_seconds(self) -> dict[str, float]: ...
    async def publishes(self, count: int, in_flight: int) -> float: ...
    async def round_trips(self, count: int, in_flight: int) -> float: ...


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add length and number of runs, and the numbers of partitions."""
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS, help="length of one run")
    parser.add_argument("--runs", type=int, default=RUNS, help="number of runs (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=300, help="messages before (%(default)s)")
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds without traffic")
    parser.add_argument(
        "--partitions",
        type=lambda text: tuple(int(one) for one in text.split(",")),
        default=PARTITIONS,
        help="numbers of partitions on one node",
    )


def contestants() -> list[ClusterContestant]:
    """Return one relay, nodes on one and three servers, and plain JetStream."""
    single = ServedRelay("journal")
    single.name = "Waypost, one relay without a cluster"
    return [
        single,
        ClusterPeer(servers=1, nodes=1),
        ClusterPeer(servers=3, nodes=1),
        ClusterPeer(servers=3, nodes=1, across=True),
        ClusterPeer(servers=3, nodes=3),
        PlainJetStream(1),
        PlainJetStream(3),
    ]


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Measure all contestants in turns, then one node with more and more partitions."""
    found: Found = {"load": [os.getloadavg()[0]]}
    async with AsyncExitStack() as stack:
        peers, missing = await _start(contestants(), scratch, stack, log)
        found |= await _rates(peers, options, log)
    async with AsyncExitStack() as stack:
        nodes = {number: ClusterPeer(1, 1, partitions=number) for number in options.partitions}
        await _start(list(nodes.values()), scratch, stack, log)
        found["partitions"] = await _partitions(nodes, options, log)
    async with AsyncExitStack() as stack:
        shared = ClusterPeer(servers=3, nodes=3, partitions=1)
        await _start([shared], scratch, stack, log)
        found["copies"] = await _copies(shared, options, log)
    found["load"].append(os.getloadavg()[0])
    return {**found, "missing": missing}


async def _start(
    peers: "list[Any]", scratch: Path, stack: AsyncExitStack, log: Log
) -> tuple[list[Any], dict[str, str]]:
    """Start all at the same time; return them, and the reasons of those that cannot run here."""
    missing = {one.name: reason for one in peers if (reason := one.available()) is not None}
    started = [one for one in peers if one.name not in missing]
    log("starting servers and nodes")
    for one in started:
        stack.push_async_callback(one.stop)
    async with asyncio.TaskGroup() as group:
        for one in started:
            group.create_task(one.start(scratch))
    return started, missing


async def _rates(
    peers: list[ClusterContestant], options: argparse.Namespace, log: Log
) -> dict[str, Any]:
    """Return rates by operation, number in flight and peer, and the costs of each operation."""
    found: dict[str, Any] = {name: {} for name in OPERATIONS}
    found["cpu_us"] = {name: {} for name in OPERATIONS}
    found["appends"] = {}
    turns = Turns(options.runs, options.seconds, log, options.warm_up)
    for number in IN_FLIGHT:
        meters = {one.name: [_Meter(one, name) for name in OPERATIONS] for one in peers}
        operations = [[meter.measured for meter in own] for own in meters.values()]
        rates = await turns.take(list(meters), operations, number)
        for (peer, own), runs in zip(meters.items(), rates, strict=True):
            for name, meter, rate in zip(OPERATIONS, own, runs, strict=True):
                found[name].setdefault(str(number), {})[peer] = rate
                if number == COST_IN_FLIGHT:
                    found["cpu_us"][name][peer] = meter.spent_us()
                    if meter.appends:
                        found["appends"].setdefault(name, {})[peer] = meter.appends[1:]
    return found


class _Meter:
    """One operation of one peer, with the CPU time of each kind of process."""

    def __init__(self, peer: ClusterContestant, operation: str) -> None:
        self._peer = peer
        self._operation: TimedOperation = getattr(peer, operation)
        self._runs: list[dict[str, float]] = []
        self.appends: list[tuple[float, float]] = []
        """Messages in one append, and milliseconds of one append, by run."""

    async def measured(self, count: int, in_flight: int) -> float:
        """Carry out the operation."""
        appended = self._appended()
        before = self._cpu()
        seconds = await self._operation(count, in_flight)
        after = self._cpu()
        self._runs.append({kind: (after[kind] - before[kind]) / count * 1e6 for kind in after})
        if appended is not None:
            number, took = (
                new - old for new, old in zip(self._appended() or (), appended, strict=True)
            )
            if number:
                self.appends.append((count / number, took / number * 1000))
        return seconds

    def spent_us(self) -> dict[str, list[float]]:
        """Return the microseconds for one message by kind of process, without the warm-up."""
        kinds = dict.fromkeys(kind for run in self._runs for kind in run)
        return {kind: [run[kind] for run in self._runs[1:]] for kind in kinds}

    def _cpu(self) -> dict[str, float]:
        return {CLIENT: time.process_time(), **self._peer.cpu_seconds()}

    def _appended(self) -> tuple[float, float] | None:
        return self._peer.cluster.appends() if isinstance(self._peer, ClusterPeer) else None


async def _partitions(
    nodes: Mapping[int, ClusterPeer], options: argparse.Namespace, log: Log
) -> dict[str, Any]:
    """Return idle CPU, memory and the cost of a message, by number of partitions."""
    found: dict[str, Any] = {}
    log(f"no traffic for {options.idle:g} s")
    await asyncio.sleep(min(5.0, options.idle))
    before = {number: peer.cpu_seconds() for number, peer in nodes.items()}
    await asyncio.sleep(options.idle)
    for number, peer in nodes.items():
        after = peer.cpu_seconds()
        idle = {kind: (after[kind] - before[number][kind]) / options.idle for kind in after}
        memory = {kind: size / 1e6 for kind, size in peer.cluster.memory_bytes().items()}
        found[str(number)] = {"idle_cores": idle, "memory_mb": memory, "cpu_us": {}, "rate": []}
    turns = Turns(options.runs, options.seconds, log, options.warm_up)
    meters = {number: _Meter(peer, "round_trips") for number, peer in nodes.items()}
    names = [f"{number} partitions" for number in meters]
    operations = [[meter.measured] for meter in meters.values()]
    rates = await turns.take(names, operations, COST_IN_FLIGHT)
    for (number, meter), [runs] in zip(meters.items(), rates, strict=True):
        found[str(number)]["cpu_us"] = meter.spent_us()
        found[str(number)]["rate"] = runs
    return found


async def _copies(
    peer: ClusterPeer, options: argparse.Namespace, log: Log
) -> dict[str, dict[str, list[float]]]:
    """Return the CPU time of a message at the owner of the one partition, and at a follower."""
    found: dict[str, dict[str, list[float]]] = {}
    for name in OPERATIONS:
        own = found[name] = {"owner": [], "follower": []}
        operation: TimedOperation = getattr(peer, name)
        count = max(options.warm_up, COST_IN_FLIGHT)
        seconds = await operation(count, COST_IN_FLIGHT)
        count = max(COST_IN_FLIGHT, round(count / seconds * 2 * options.seconds))
        for run in range(options.runs):
            log(f"one partition at three nodes, {name}, run {run + 1} of {options.runs}")
            before = peer.cluster.node_cpu_seconds()
            await operation(count, COST_IN_FLIGHT)
            await asyncio.sleep(COPIED_S)
            after = peer.cluster.node_cpu_seconds()
            spent = [(new - old) / count * 1e6 for new, old in zip(after, before, strict=True)]
            own["owner"].append(max(spent))
            own["follower"].append((sum(spent) - max(spent)) / (len(spent) - 1))
    return found


def tables(found: Found) -> list[Table]:
    """Return rates, costs by kind of process, and the cost of partitions."""
    titles = {
        "publishes": "Publishes per second, to agents that are away",
        "round_trips": "Round trips per second: publish, deliver, confirm",
    }
    shown = [compare(titles[name], found[name], BASELINE, found["missing"]) for name in OPERATIONS]
    shown += [_costs(found, name) for name in OPERATIONS]
    shown.append(_partitions_table(found["partitions"]))
    rows = [
        [name.replace("_", " "), *(rate_text(own[kind]) for kind in ("owner", "follower"))]
        for name, own in found["copies"].items()
    ]
    title = "CPU time of a node for one message, µs: one partition at three nodes"
    caption = f"{COST_IN_FLIGHT} in flight, median ± half the spread of the runs"
    shown.append(Table(title, ["message", "the owner", "each follower"], rows, caption))
    before, after = found["load"]
    load = f"; load of the machine {before:.0f} before and {after:.0f} after"
    return [replace(shown[0], caption=shown[0].caption + load), *shown[1:]]


def _costs(found: Found, operation: str) -> Table:
    kinds = (CLIENT, NODES, SERVERS)
    rows = []
    for peer, by_kind in found["cpu_us"][operation].items():
        cells = [rate_text(by_kind[kind]) if kind in by_kind else "–" for kind in kinds]
        total = [sum(runs) for runs in zip(*by_kind.values(), strict=True)]
        appends = found["appends"].get(operation, {}).get(peer)
        batch, took = ("–", "–")
        if appends:
            batch = number_text(median([one for one, _ in appends]))
            took = number_text(median([one for _, one in appends]))
        rows.append([peer, *cells, rate_text(total), batch, took])
    name = operation.replace("_", " ").removesuffix("es").removesuffix("s")
    return Table(
        f"CPU time of one {name}, µs, by kind of process",
        ["peer", *kinds, "all", "messages in an append", "ms of an append"],
        rows,
        f"{COST_IN_FLIGHT} in flight, median ± half the spread of the runs",
    )


def _partitions_table(found: Found) -> Table:
    rows = [
        [
            number,
            f"{own['idle_cores'][NODES]:.1%}",
            f"{own['idle_cores'][SERVERS]:.1%}",
            number_text(own["memory_mb"][NODES]),
            number_text(own["memory_mb"][SERVERS]),
            *(rate_text(_without_idle(own, kind)) for kind in (NODES, SERVERS)),
        ]
        for number, own in found.items()
    ]
    return Table(
        "One node on one server, by number of partitions",
        [
            "partitions",
            "idle CPU of the node",
            "of the server",
            "MB of the node",
            "of the server",
            "µs of the node for a round trip",
            "of the server",
        ],
        rows,
        "idle CPU in percent of one core, and not counted in the cost of a round trip; all round"
        f" trips within one of the partitions, {COST_IN_FLIGHT} in flight",
    )


def _without_idle(own: Found, kind: str) -> list[float]:
    """Return the CPU time of a round trip, by run, less what the process takes without traffic."""
    return [
        spent - own["idle_cores"][kind] / rate * 1e6
        for spent, rate in zip(own["cpu_us"][kind], own["rate"], strict=True)
    ]


BENCHMARK = Benchmark(
    "cluster",
    __doc__,
    measure,
    tables,
    ("--runs", "2", "--seconds", "0.2", "--warm-up", "50", "--idle", "2", "--partitions", "1,16"),
    add_options,
    in_quick_run=False,
)

if __name__ == "__main__":
    run_one(BENCHMARK)
