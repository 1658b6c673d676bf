"""`./run bench ids`: the cost of a publish with a chosen id, in a relay that remembers a million.

Two relays, one with no ids and one that remembers a million, publish in turns. Also the longest
time in which the event loop was blocked meanwhile.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

from bench.embedded import open_settings
from bench.program import Benchmark, Found, run_one
from bench.publishing import open_relay, publish_for
from bench.series import rate_text, ratio, ratio_text
from bench.tables import Table
from bench.turns import Log
from bench.workload import make_payload
from waypost import Relay

IDS = 1_000_000
RUNS = 7
RUN_SECONDS = 0.5
BATCH = 1_000
SENDERS = 100
"""Of the remembered ids: one alone would have a rate window as long as the whole past."""
BEAT_SECONDS = 0.001


class Heartbeat:
    """Beats on the event loop, and records the longest delay of a beat in ms."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def __aenter__(self) -> "Heartbeat":
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beating.cancel()

    async def _beat(self) -> None:
        while True:
            due = time.perf_counter() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - due) * 1000)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of ids, and length and number of runs."""
    parser.add_argument("--ids", type=int, default=IDS, help="remembered ids (%(default)s)")
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS, help="length of one run")
    parser.add_argument("--runs", type=int, default=RUNS, help="number of runs (%(default)s)")


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Fill one relay, then measure both in turns."""
    filled = await _fill(scratch, options.ids, log)
    found: Found = {"ids": options.ids}
    names = ("none", "many")
    found |= {f"{name}_{figure}": [] for name in names for figure in ("us", "stall_ms")}
    fresh = count()
    async with AsyncExitStack() as stack:
        empty, _ = await stack.enter_async_context(open_relay(scratch))
        many = await stack.enter_async_context(Relay(filled, settings=open_settings("journal")))
        for relay in (empty, many):
            relay.register_endpoint("agent.sink")
        for run in range(-1, options.runs):
            for name, relay in zip(names, (empty, many), strict=True):
                log(f"{name}, run {run + 1} of {options.runs}")
                async with Heartbeat() as heartbeat:
                    cost = await publish_for(relay, options.seconds, _with_ids(fresh))
                if run >= 0:  # the first one warms up
                    found[f"{name}_us"].append(cost)
                    found[f"{name}_stall_ms"].append(heartbeat.longest_ms)
    return found


def _with_ids(fresh: "count[int]") -> Callable[[int], dict[str, Any]]:
    payload = make_payload(1)
    return lambda _: {
        "subject": "agent.sink",
        "payload": payload,
        "sender": "agent.worker",
        "message_id": f"new-{next(fresh)}",
    }


async def _fill(scratch: Path, ids: int, log: Log) -> Path:
    """Return the directory of a relay that has delivered `ids` messages with chosen ids."""
    async with open_relay(scratch, "async") as (relay, directory):
        relay.register_endpoint("agent.sink")
        for begin in range(0, ids, BATCH):
            log(f"remembering ids: {begin:,} of {ids:,}")
            numbers = range(begin, min(begin + BATCH, ids))
            await relay.publish_many(
                {
                    "subject": "agent.sink",
                    "payload": None,
                    "sender": f"agent.past-{number % SENDERS}",
                    "message_id": f"old-{number}",
                }
                for number in numbers
            )
            leased = await relay.lease("agent.sink", limit=len(numbers))
            await relay.ack("agent.sink", [envelope.id for envelope in leased])
    return directory


def tables(found: Found) -> list[Table]:
    """Return costs and stalls."""
    costs = ratio(found["many_us"], found["none_us"])
    rows = [
        ["0", rate_text(found["none_us"]), "", f"{max(found['none_stall_ms']):.1f}"],
        [
            f"{found['ids']:,}",
            rate_text(found["many_us"]),
            ratio_text(costs),
            f"{max(found['many_stall_ms']):.1f}",
        ],
    ]
    headings = ["ids remembered", "µs of a publish", "ratio", "longest stall, ms"]
    return [Table("Publishes with chosen ids", headings, rows)]


BENCHMARK = Benchmark(
    "ids",
    __doc__,
    measure,
    tables,
    ("--ids", "20000", "--runs", "3", "--seconds", "0.2"),
    add_options,
)

if __name__ == "__main__":
    run_one(BENCHMARK)
