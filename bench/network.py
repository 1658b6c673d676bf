"""`./run bench network`: durable round trips through a served relay, next to NATS JetStream."""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import table
from bench.peers.nats_jetstream import SYNC_DEFAULT
from bench.peers.nats_round_trips import NatsRoundTrips
from bench.peers.served_relay import ServedRelay
from bench.round_trips import RoundTripPeer
from bench.workload import PAYLOAD_BYTES, Rate, Turns

IN_FLIGHT = (1, 100)
RUNS = 5
RUN_SECONDS = 1.0
BASELINE = "NATS JetStream"


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Round trips of one peer at one number in flight."""

    peer: str
    in_flight: int
    rate: Rate


def main() -> None:
    """Measure, then print a table or JSON."""
    parser = argparse.ArgumentParser(prog="./run bench network", description=__doc__)
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path.cwd(),
        help="directory for the files of every server, on the disk to measure (%(default)s)",
    )
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS, help="length of one run")
    parser.add_argument(
        "--runs", type=int, default=RUNS, help="number of runs; their median is reported"
    )
    table.add_output_options(parser, baseline=BASELINE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.data_dir) as scratch:
        asyncio.run(_run(options, Path(scratch)))


async def _run(options: argparse.Namespace, scratch: Path) -> None:
    peers: list[RoundTripPeer] = [
        ServedRelay("journal"),
        ServedRelay("maildir"),
        NatsRoundTrips(),
        NatsRoundTrips(sync_interval=SYNC_DEFAULT),
    ]
    skipped = {peer.name: reason for peer in peers if (reason := peer.available()) is not None}
    available = [peer for peer in peers if peer.name not in skipped]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    found: list[RoundTrips] = []
    names = [peer.name for peer in available]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting")
        async with AsyncExitStack() as stack:
            for peer in available:
                await peer.start(scratch)
                stack.push_async_callback(peer.stop)
            turns = Turns(
                options.runs,
                options.seconds,
                lambda text: progress.update(task, description=text),
            )
            for in_flight in IN_FLIGHT:
                operations = [(peer.round_trips,) for peer in available]
                rates = await turns.take(names, operations, in_flight)
                found += [
                    RoundTrips(name, in_flight, rate)
                    for name, [rate] in zip(names, rates, strict=True)
                ]
    if options.json:
        results = [{**asdict(one), "ratio": _ratio(one, found, options.baseline)} for one in found]
        print(json.dumps({"results": results, "skipped": skipped}, indent=2))
        return
    Console().print(_table(found, options.baseline))
    for name, reason in skipped.items():
        Console().print(f"Skipped: {name}. {reason}", highlight=False)


def _ratio(one: RoundTrips, found: Sequence[RoundTrips], baseline: str) -> float | None:
    for other in found:
        if other.peer == baseline and other.in_flight == one.in_flight:
            return one.rate.median / other.rate.median
    return None


def _table(found: Sequence[RoundTrips], baseline: str) -> Table:
    shown = Table(
        title="Durable round trips per second: publish, deliver, confirm",
        caption=f"{PAYLOAD_BYTES}-byte payloads; median ± half the spread; ratio to {baseline}",
    )
    shown.add_column("peer")
    for in_flight in IN_FLIGHT:
        shown.add_column(f"{in_flight} in flight", justify="right")
    for name in dict.fromkeys(one.peer for one in found):
        cells = [_cell(one, found, baseline) for one in found if one.peer == name]
        shown.add_row(name, *cells)
    return shown


def _cell(one: RoundTrips, found: Sequence[RoundTrips], baseline: str) -> str:
    rate = one.rate
    spread = (rate.fastest - rate.slowest) / 2 / rate.median
    ratio = _ratio(one, found, baseline)
    return f"{rate.median:,.0f} ±{spread:.0%}" + (f"  {ratio:.2f}x" if ratio is not None else "")


if __name__ == "__main__":
    main()
