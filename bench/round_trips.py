"""Round trips: a message is published, on disk, delivered to a consumer, and confirmed by it.

A peer has a producer and a consumer, both connected to one server over loopback, in the process of
the benchmark. `in_flight` messages go out together; when the last of them is confirmed, the next
ones do. One short run warms up and tells how many fill `seconds`; the median of the runs after it
is the figure. Peers take turns run by run, so that what else the machine does hits all of them.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

WARM_UP_MESSAGES = 200


class RoundTripPeer(Protocol):
    """A server under measurement, with a producer and a consumer."""

    @property
    def name(self) -> str:
        """The name in tables and JSON."""
        ...

    def available(self) -> str | None:
        """None if the peer can run here, else a sentence that says what is missing."""
        ...

    async def start(self, data_dir: Path) -> None:
        """Start with an empty store on `data_dir`'s filesystem; nothing is left on failure."""
        ...

    async def round_trips(self, count: int, in_flight: int) -> float:
        """Seconds for `count` messages, `in_flight` at a time; each must be confirmed."""
        ...

    async def stop(self) -> None:
        """End everything and remove the files. Safe to call twice, or without a start."""
        ...


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Round trips per second of one peer at one number in flight, over several runs."""

    peer: str
    in_flight: int
    median: float
    slowest: float
    fastest: float
    messages: int


@contextlib.contextmanager
def clocked() -> Iterator[list[float]]:
    """A list that holds the seconds of the block once it is over."""
    seconds: list[float] = []
    begin = time.perf_counter()
    yield seconds
    seconds.append(time.perf_counter() - begin)


async def measure_together(
    peers: Sequence[RoundTripPeer],
    in_flight: int,
    *,
    runs: int,
    seconds: float,
    on_run: Callable[[str], None] = lambda text: None,
) -> list[RoundTrips]:
    """Started peers, in turn, run by run."""
    counts: list[int] = []
    for peer in peers:
        on_run(f"{peer.name}, warming up")
        warm_up = max(WARM_UP_MESSAGES, 2 * in_flight)
        spent = await peer.round_trips(warm_up, in_flight)
        counts.append(max(1, round(warm_up / spent * seconds / in_flight)) * in_flight)
    rates: list[list[float]] = [[] for _ in peers]
    for run in range(runs):
        for position, peer in enumerate(peers):
            on_run(f"{peer.name}, {in_flight} in flight, run {run + 1} of {runs}")
            spent = await peer.round_trips(counts[position], in_flight)
            rates[position].append(counts[position] / spent)
    return [
        RoundTrips(peer.name, in_flight, statistics.median(found), min(found), max(found), messages)
        for peer, found, messages in zip(peers, rates, counts, strict=True)
    ]
