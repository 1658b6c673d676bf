"""The messages that every peer carries, and the measurement of a rate.

A run publishes a number of messages, then reads and acknowledges the same number; both are timed
separately. One short run warms up and determines how many messages fill `seconds`. The median of
the following runs is reported, with the slowest and the fastest as its spread. Peers take turns,
run by run, so that other load on the machine affects all of them.
"""

import json
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bench.peers import Peer

PAYLOAD_BYTES = 512
PAYLOAD_VARIANTS = 1000
IN_FLIGHT = (1, 100, 1000)
RUNS = 5
RUN_SECONDS = 0.7
WARM_UP_MESSAGES = 500
WARM_UP_BATCHES = 4


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages per second over several runs of `messages` messages each."""

    median: float
    slowest: float
    fastest: float
    messages: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One peer at one number of messages in flight."""

    peer: str
    in_flight: int
    publish: Rate
    consume: Rate


def make_payload(index: int) -> dict[str, object]:
    """Return a task message of exactly 512 bytes as compact JSON, determined by `index`."""
    payload: dict[str, object] = {
        "type": "task.assigned",
        "task": f"task-{index:08d}",
        "attempt": index % 5,
        "priority": (index * 7) % 10,
        "tags": ["billing", "refund", f"shard-{index % 16:02d}"],
        "body": "",
    }
    filler = f"Refund order {index * 7919 % 1_000_003:06d} and tell the customer why. "
    missing = PAYLOAD_BYTES - len(encode_payload(payload))
    payload["body"] = (filler * (missing // len(filler) + 1))[:missing]
    return payload


def encode_payload(payload: dict[str, object]) -> bytes:
    """Encode as compact JSON."""
    return json.dumps(payload, separators=(",", ":")).encode()


def make_encoded_payloads() -> list[bytes]:
    """Return 1000 different encoded payloads, for peers that carry bytes.

    Their time to encode is not measured.
    """
    return [encode_payload(make_payload(index)) for index in range(PAYLOAD_VARIANTS)]


async def measure_together(
    peers: Sequence[Peer], in_flight: int, turns: "Turns"
) -> list[Measurement]:
    """Measure started peers, publishing and then consuming in each run."""
    operations = [(peer.publish, peer.consume) for peer in peers]
    rates = await turns.take([peer.name for peer in peers], operations, in_flight)
    return [
        Measurement(peer.name, in_flight, publish, consume)
        for peer, (publish, consume) in zip(peers, rates, strict=True)
    ]


TimedOperation = Callable[[int, int], Awaitable[float]]
"""Takes a number of messages and a number in flight; returns the seconds."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Measures peers in turn: `runs` of about `seconds` each, after one that warms up."""

    runs: int = RUNS
    seconds: float = RUN_SECONDS
    on_run: Callable[[str], None] = lambda text: None

    async def take(
        self, names: Sequence[str], operations: Sequence[Sequence[TimedOperation]], in_flight: int
    ) -> list[list[Rate]]:
        """Return the rates of each peer's operations; the first one determines the run's length."""
        counts = []
        for name, own in zip(names, operations, strict=True):
            self.on_run(f"{name}, warming up")
            warm_up = max(WARM_UP_MESSAGES, WARM_UP_BATCHES * in_flight)
            spent = [await operation(warm_up, in_flight) for operation in own]
            counts.append(max(1, round(warm_up / spent[0] * self.seconds / in_flight)) * in_flight)
        rates: list[list[list[float]]] = [[[] for _ in own] for own in operations]
        for run in range(self.runs):
            for at, own in enumerate(operations):
                self.on_run(f"{names[at]}, {in_flight:,} in flight, run {run + 1} of {self.runs}")
                for which, operation in enumerate(own):
                    rates[at][which].append(counts[at] / await operation(counts[at], in_flight))
        return [[_summarise(found, counts[at]) for found in rates[at]] for at in range(len(names))]


def _summarise(rates: list[float], messages: int) -> Rate:
    return Rate(statistics.median(rates), min(rates), max(rates), messages)
