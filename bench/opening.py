"""`./run bench opening`: the time to open a relay after a crash.

A relay delivers messages until its journal has a million events. Then it is opened twice in each
turn: with the checkpoint of its end, and with that of its beginning, so that all events are behind
it, as if the process had been killed before it wrote another one.
"""

import argparse
import shutil
import time
from pathlib import Path

from bench.embedded import open_settings
from bench.peers import require
from bench.program import Benchmark, Found, run_one
from bench.series import median, number_text, ratio_text
from bench.tables import Table
from bench.turns import Log
from bench.workload import make_payload
from waypost import Relay

EVENTS = 1_000_000
EVENTS_PER_MESSAGE = 3  # accepted, leased, acked
BATCH = 1_000
RUNS = 3
SENDERS = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of events and of runs."""
    parser.add_argument("--events", type=int, default=EVENTS, help="journal size (%(default)s)")
    parser.add_argument("--runs", type=int, default=RUNS, help="number of runs (%(default)s)")


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Write the journal once, then open it in turns."""
    data, old, new = scratch / "data", scratch / "old.db", scratch / "new.db"
    async with Relay(data, settings=open_settings("journal", "async")) as relay:
        relay.register_endpoint("agent.sink")
    shutil.copy(data / "index.db", old)
    await _deliver(data, options.events, log)
    shutil.copy(data / "index.db", new)
    found: Found = {"events": options.events, "behind_seconds": [], "current_seconds": []}
    for run in range(options.runs):
        for name, index in (("behind_seconds", old), ("current_seconds", new)):
            log(f"opening, run {run + 1} of {options.runs}")
            shutil.copy(index, data / "index.db")
            found[name].append(await _open(data))
    return found


async def _open(data: Path) -> float:
    relay = Relay(data, settings=open_settings("journal"))
    begin = time.perf_counter()
    await relay.open()
    seconds = time.perf_counter() - begin
    pending = await relay.peek("agent.sink")
    await relay.close()
    require(len(pending) == 1, f"{len(pending)} messages are pending, not the last one alone")
    return seconds


async def _deliver(data: Path, events: int, log: Log) -> None:
    """Publish, lease and acknowledge all messages but one."""
    payload = make_payload(1)
    async with Relay(data, settings=open_settings("journal", "async")) as relay:
        for begin in range(0, events, BATCH * EVENTS_PER_MESSAGE):
            log(f"writing the journal: {begin:,} of {events:,} events")
            size = min(BATCH, -(-(events - begin) // EVENTS_PER_MESSAGE))
            await relay.publish_many(
                {
                    "subject": "agent.sink",
                    "payload": payload,
                    "sender": f"agent.worker-{number % SENDERS}",
                }
                for number in range(size)
            )
            leased = await relay.lease("agent.sink", limit=size)
            await relay.ack("agent.sink", [envelope.id for envelope in leased])
        await relay.publish("agent.sink", payload, sender="agent.worker")


def tables(found: Found) -> list[Table]:
    """Return the seconds to open."""
    rows = [
        ["at the end", "0", f"{number_text(median(found['current_seconds']))} s"],
        ["at the beginning", f"{found['events']:,}", f"{ratio_text(found['behind_seconds'])} s"],
    ]
    headings = ["checkpoint", "events behind it", "time to open"]
    return [Table("Opening a relay", headings, rows)]


BENCHMARK = Benchmark(
    "opening", __doc__, measure, tables, ("--events", "30000", "--runs", "2"), add_options
)

if __name__ == "__main__":
    run_one(BENCHMARK)
