"""`./run bench growth`: the cost of one publish in a large relay.

It has many subscriptions, endpoints, senders, or access rules under one prefix. Two relays, one
with 100 and one with 100,000 of them, publish in turns. There can be at most 10,000 access rules.
"""

import argparse
import json
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.program import Benchmark, Found, run_one
from bench.publishing import open_relay, publish_for
from bench.series import rate_text, ratio, ratio_text
from bench.tables import Table
from bench.turns import Log
from bench.workload import make_payload
from waypost import Relay
from waypost.policy.bounds import access_rules_max

SMALL, LARGE = 100, 100_000
RUNS = 7
RUN_SECONDS = 0.3

Traffic = tuple[list[str], list[str]]
"""Subjects and senders to choose from."""


def _subscriptions(relay: Relay, directory: Path, number: int) -> Traffic:
    relay.register_endpoint("agent.sink")
    for index in range(number):
        relay.subscribe(f"agent.other-{index}.>", _ignore)
    return ["agent.sink"], ["agent.worker"]


def _endpoints(relay: Relay, directory: Path, number: int) -> Traffic:
    subjects = [f"agent.box-{index}" for index in range(number)]
    for subject in subjects:
        relay.register_endpoint(subject)
    return subjects, ["agent.worker"]


def _senders(relay: Relay, directory: Path, number: int) -> Traffic:
    relay.register_endpoint("agent.sink")
    senders = [f"agent.worker-{index}" for index in range(number)]
    for sender in senders:
        relay._runtime.ledger.state.windows.record(sender, relay._runtime.ledger.now_us() // 1000)
    return ["agent.sink"], senders


def _access_rules(relay: Relay, directory: Path, number: int) -> Traffic:
    """Deny everyone below `agent` each of many recipients below it."""
    relay.register_endpoint("agent.sink")
    rules = [
        {"from": "agent.>", "to": f"agent.other-{index}.>", "action": "deny"}
        for index in range(min(number, access_rules_max))
    ]
    (directory / "access-rules.json").write_text(json.dumps(rules))
    relay.access.reload()
    return ["agent.sink"], ["agent.worker"]


KINDS: dict[str, Callable[[Relay, Path, int], Traffic]] = {
    "subscriptions": _subscriptions,
    "endpoints": _endpoints,
    "senders": _senders,
    "access rules": _access_rules,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the large size, and length and number of runs."""
    parser.add_argument("--large", type=int, default=LARGE, help="the large size (%(default)s)")
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS, help="length of one run")
    parser.add_argument("--runs", type=int, default=RUNS, help="number of runs (%(default)s)")


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Measure each kind on two relays of its own."""
    found: Found = {}
    for kind, populate in KINDS.items():
        async with AsyncExitStack() as stack:
            relays = []
            costs: dict[str, list[float]] = {}
            for name, number in (("small_us", SMALL), ("large_us", options.large)):
                log(f"{number:,} {kind}")
                relay, directory = await stack.enter_async_context(open_relay(scratch))
                traffic = populate(relay, directory, number)
                await relay.idle()
                relays.append((relay, traffic, costs.setdefault(name, [])))
            for run in range(-1, options.runs):
                for relay, (subjects, senders), own in relays:
                    log(f"{kind}, run {run + 1} of {options.runs}")
                    message = _chooser(subjects, senders)
                    cost = await publish_for(relay, options.seconds, message)
                    if run >= 0:  # the first one warms up
                        own.append(cost)
        large = options.large if kind != "access rules" else min(options.large, access_rules_max)
        found[kind] = {"small": SMALL, "large": large, **costs}
    return found


def _chooser(subjects: list[str], senders: list[str]) -> Callable[[int], dict[str, Any]]:
    choose = random.Random(1).choice
    payload = make_payload(1)
    return lambda _: {
        "subject": choose(subjects),
        "payload": payload,
        "sender": choose(senders),
    }


def tables(found: Found) -> list[Table]:
    """Return the costs with few and with many."""
    rows = [
        [
            kind,
            f"{one['small']:,}",
            rate_text(one["small_us"]),
            f"{one['large']:,}",
            rate_text(one["large_us"]),
            ratio_text(ratio(one["large_us"], one["small_us"])),
        ]
        for kind, one in found.items()
        if kind in KINDS
    ]
    headings = ["kind", "few", "µs", "many", "µs", "ratio"]
    return [Table("Cost of one publish in a large relay", headings, rows)]


def _ignore(envelope: object) -> None:
    """Do nothing: this handler is never called."""


BENCHMARK = Benchmark(
    "growth",
    __doc__,
    measure,
    tables,
    ("--large", "2000", "--runs", "3", "--seconds", "0.1"),
    add_options,
)

if __name__ == "__main__":
    run_one(BENCHMARK)
