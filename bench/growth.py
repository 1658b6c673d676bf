"""The cost of one publish with many subscriptions, endpoints or senders.

The same publishes are timed with 100 and with 100,000 of them. Runs of the two sizes alternate, and
the fastest of each counts, because noise only adds time.
"""

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.embedded import open_settings
from bench.workload import make_payload
from waypost import Relay

SMALL, LARGE = 100, 100_000
PUBLISHES = 2_000
IN_FLIGHT = 100
ROUNDS = 3
RUNS = 5


@dataclass(frozen=True, slots=True)
class Growth:
    """The µs of one publish with 100 and with 100,000 of `kind`."""

    kind: str
    small_us: float
    large_us: float

    @property
    def ratio(self) -> float:
        """The cost with many, relative to the cost with few."""
        return self.large_us / self.small_us


Traffic = tuple[list[str], list[str]]


def _subscriptions(relay: Relay, number: int) -> Traffic:
    relay.register_endpoint("agent.sink")
    for index in range(number):
        relay.subscribe(f"agent.other-{index}.>", _ignore)
    return ["agent.sink"], ["agent.worker"]


def _endpoints(relay: Relay, number: int) -> Traffic:
    subjects = [f"agent.box-{index}" for index in range(number)]
    for subject in subjects:
        relay.register_endpoint(subject)
    return subjects, ["agent.worker"]


def _senders(relay: Relay, number: int) -> Traffic:
    relay.register_endpoint("agent.sink")
    senders = [f"agent.worker-{index}" for index in range(number)]
    for sender in senders:
        relay._runtime.ledger.state.windows.record(sender, relay._runtime.ledger.now_us() // 1000)
    return ["agent.sink"], senders


KINDS: dict[str, Callable[[Relay, int], Traffic]] = {
    "subscriptions": _subscriptions,
    "endpoints": _endpoints,
    "senders": _senders,
}


async def measure_growth(data_dir: Path, kind: str) -> Growth:
    """Measure the cost of a publish with 100 and with 100,000 of `kind`."""
    small: list[float] = []
    large: list[float] = []
    for _ in range(ROUNDS):
        small.append(await _cost_us(data_dir, KINDS[kind], SMALL))
        large.append(await _cost_us(data_dir, KINDS[kind], LARGE))
    return Growth(kind, min(small), min(large))


async def _cost_us(data_dir: Path, populate: Callable[[Relay, int], Traffic], number: int) -> float:
    directory = Path(tempfile.mkdtemp(prefix="waypost-", dir=data_dir))
    try:
        async with Relay(directory, settings=open_settings("journal")) as relay:
            subjects, senders = populate(relay, number)
            await relay.idle()
            costs = [await _time_publishes(relay, subjects, senders) for _ in range(RUNS)]
            return min(costs)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _time_publishes(relay: Relay, subjects: list[str], senders: list[str]) -> float:
    choose = random.Random(1)
    payload = make_payload(1)
    work = iter([(choose.choice(subjects), choose.choice(senders)) for _ in range(PUBLISHES)])

    async def worker() -> None:
        for subject, sender in work:
            await relay.publish(subject, payload, sender=sender)

    begin = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return (time.perf_counter() - begin) / PUBLISHES * 1_000_000


def _ignore(envelope: object) -> None:
    """Do nothing: this handler is never called."""
