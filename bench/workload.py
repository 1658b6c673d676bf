"""What every peer carries, and how a rate is measured.

A run publishes a number of messages and then reads and acknowledges the same number, each timed
by itself. One short run warms up and tells how many messages fill `seconds`; the median of the
runs after it is the figure, the slowest and the fastest are its spread. Peers take turns, run by
run, so that what else the machine does hits all of them.
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
    """A task message whose compact JSON has exactly 512 bytes; the same for the same index."""
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
    """Compact JSON."""
    return json.dumps(payload, separators=(",", ":")).encode()


def make_encoded_payloads() -> list[bytes]:
    """1000 different encoded payloads for a peer to take in turn.

    Peers that carry bytes get them ready made: encoding is not on their clock.
    """
    return [encode_payload(make_payload(index)) for index in range(PAYLOAD_VARIANTS)]


async def measure_together(
    peers: Sequence[Peer], in_flight: int, turns: "Turns"
) -> list[Measurement]:
    """Median rates of started peers, publishing and then consuming in each run."""
    acts = [(peer.publish, peer.consume) for peer in peers]
    rates = await turns.take([peer.name for peer in peers], acts, in_flight)
    return [
        Measurement(peer.name, in_flight, publish, consume)
        for peer, (publish, consume) in zip(peers, rates, strict=True)
    ]


Act = Callable[[int, int], Awaitable[float]]
"""Seconds for so many messages, so many of them in flight."""


@dataclass(frozen=True, slots=True)
class Turns:
    """How peers are measured in turn: `runs` of about `seconds` each, after one that warms up."""

    runs: int = RUNS
    seconds: float = RUN_SECONDS
    on_run: Callable[[str], None] = lambda text: None

    async def take(
        self, names: Sequence[str], acts: Sequence[Sequence[Act]], in_flight: int
    ) -> list[list[Rate]]:
        """For each peer, the rate of each of its acts; the first one tells how many fill a run."""
        counts = []
        for name, mine in zip(names, acts, strict=True):
            self.on_run(f"{name}, warming up")
            warm_up = max(WARM_UP_MESSAGES, WARM_UP_BATCHES * in_flight)
            spent = [await act(warm_up, in_flight) for act in mine]
            counts.append(max(1, round(warm_up / spent[0] * self.seconds / in_flight)) * in_flight)
        rates: list[list[list[float]]] = [[[] for _ in mine] for mine in acts]
        for run in range(self.runs):
            for at, mine in enumerate(acts):
                self.on_run(f"{names[at]}, {in_flight:,} in flight, run {run + 1} of {self.runs}")
                for which, act in enumerate(mine):
                    rates[at][which].append(counts[at] / await act(counts[at], in_flight))
        return [[_summarise(found, counts[at]) for found in rates[at]] for at in range(len(names))]


def _summarise(rates: list[float], messages: int) -> Rate:
    return Rate(statistics.median(rates), min(rates), max(rates), messages)
