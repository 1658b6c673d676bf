"""`./run bench core`: the embedded relay next to Redis Streams and NATS JetStream, in one run."""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import table
from bench.admission import measure_admission_us
from bench.embedded import EmbeddedRelay
from bench.growth import KINDS, Growth, measure_growth
from bench.peers import Peer
from bench.peers.nats_jetstream import NatsJetStream
from bench.peers.redis_streams import RedisAwaited, RedisStreams
from bench.workload import IN_FLIGHT, RUN_SECONDS, RUNS, Measurement, Turns, measure_together

BASELINE = "Redis Streams"
ADMISSION_MARK_US = 8.0
GROWTH_MARK = 1.3


def main() -> None:
    """Measure, then print tables or JSON."""
    options = _parse()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.data_dir) as scratch:
        asyncio.run(_run(options, Path(scratch)))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench core", description=__doc__)
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path.cwd(),
        help="directory for the files of every peer, on the disk to measure (%(default)s)",
    )
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS, help="length of one run")
    parser.add_argument(
        "--runs", type=int, default=RUNS, help="number of runs; their median is reported"
    )
    parser.add_argument("--only", help="measure only peers whose name contains this text")
    parser.add_argument("--no-growth", action="store_true", help="skip the growth measurements")
    table.add_output_options(parser, baseline=BASELINE)
    return parser.parse_args()


def _peers(only: str | None) -> list[Peer]:
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
        EmbeddedRelay("journal", "async"),
        EmbeddedRelay("maildir", "async"),
    ]
    return [peer for peer in peers if only is None or only.lower() in peer.name.lower()]


async def _run(options: argparse.Namespace, scratch: Path) -> None:
    console = Console(stderr=True)
    measurements: list[Measurement] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting")
        peers = _peers(options.only)
        skipped = {peer.name: reason for peer in peers if (reason := peer.available()) is not None}
        available = [peer for peer in peers if peer.name not in skipped]
        async with AsyncExitStack() as stack:
            for peer in available:
                stack.push_async_callback(peer.stop)
                await peer.start(scratch)
            turns = Turns(
                options.runs,
                options.seconds,
                lambda text: progress.update(task, description=text),
            )
            for in_flight in IN_FLIGHT:
                measurements += await measure_together(available, in_flight, turns)
        progress.update(task, description="admission alone")
        admission_us = measure_admission_us()
        growth: list[Growth] = []
        for kind in () if options.no_growth else KINDS:
            progress.update(task, description=f"growth: 100 and 100,000 {kind}")
            growth.append(await measure_growth(scratch, kind))
    baseline = (
        options.baseline if _was_measured(measurements, options.baseline) else measurements[0].peer
    )
    if options.json:
        report = table.to_json(measurements, baseline=baseline, skipped=skipped)
        report["publishes_per_sync"] = _publishes_per_sync(peers)
        report["admission_us"] = admission_us
        report["growth"] = {one.kind: {**asdict(one), "ratio": one.ratio} for one in growth}
        print(json.dumps(report, indent=2))
        return
    table.show(measurements, baseline=baseline, skipped=skipped)
    for name, served in _publishes_per_sync(peers).items():
        numbers = ", ".join(f"{n:,.0f} at {flight}" for flight, n in served.items())
        Console().print(f"{name}: publishes per sync, by number in flight: {numbers}")
    _show_costs(admission_us, growth)


def _publishes_per_sync(peers: Sequence[Peer]) -> dict[str, dict[int, float]]:
    """Return the publishes per sync of each relay variant that syncs."""
    return {
        peer.name: peer.publishes_per_commit
        for peer in peers
        if isinstance(peer, EmbeddedRelay) and peer.durable
    }


def _was_measured(measurements: Sequence[Measurement], name: str) -> bool:
    return any(measurement.peer == name for measurement in measurements)


def _show_costs(admission_us: float, growth: Sequence[Growth]) -> None:
    costs = Table(title="Cost of one publish, µs")
    for heading in ("", "with 100", "with 100,000", "ratio", "mark"):
        costs.add_column(heading, justify="left" if not heading else "right")
    costs.add_row("admission alone", f"{admission_us:.1f}", "", "", f"< {ADMISSION_MARK_US:.0f} µs")
    for one in growth:
        ratio, mark = f"{one.ratio:.2f}x", f"< {GROWTH_MARK}x"
        costs.add_row(one.kind, f"{one.small_us:.1f}", f"{one.large_us:.1f}", ratio, mark)
    Console().print(costs)


if __name__ == "__main__":
    main()
