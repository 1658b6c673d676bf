"""Rates and costs of contestants at several numbers in flight, for `core` and `network`."""

import argparse
from collections.abc import Sequence

from bench.costs import FILL, IN_FLIGHT, CpuMeter, measure_disk
from bench.peers import Contestant
from bench.program import Found
from bench.turns import Log, TimedOperation, Turns

RUNS = 5

Entry = tuple[Contestant, Sequence[TimedOperation]]
"""A started contestant, and its operations in order."""


def add_options(parser: argparse.ArgumentParser, *, seconds: float) -> None:
    """Add number and length of the runs, with `seconds` as the default."""
    parser.add_argument("--seconds", type=float, default=seconds, help="length of one run")
    parser.add_argument("--runs", type=int, default=RUNS, help="number of runs (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=500, help="messages before (%(default)s)")
    parser.add_argument(
        "--fill", type=int, default=FILL, help="messages to measure bytes on disk (%(default)s)"
    )


async def measure_rates(
    entries: Sequence[Entry],
    names: Sequence[str],
    numbers: Sequence[int],
    options: argparse.Namespace,
    log: Log,
) -> Found:
    """Return the rates by operation (`names`), number in flight and contestant, and `costs`."""
    found: Found = {name: {str(number): {} for number in numbers} for name in names}
    costs = found["costs"] = {}
    for contestant, operations in entries:
        log(f"{contestant.name}: bytes on disk")
        costs[contestant.name] = await measure_disk(contestant, operations, options.fill)
    turns = Turns(options.runs, options.seconds, log, options.warm_up)
    for number in numbers:
        meters = {one.name: CpuMeter(one, *operations) for one, operations in entries}
        measured = [meter.operations() for meter in meters.values()]
        rates = await turns.take(list(meters), measured, number)
        for peer, own in zip(meters, rates, strict=True):
            for name, runs in zip(names, own, strict=True):
                found[name][str(number)][peer] = runs
            if number == IN_FLIGHT:
                costs[peer]["cpu_seconds"] = meters[peer].seconds()
    return found
