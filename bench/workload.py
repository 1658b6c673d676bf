"""What every peer carries, and how a rate is measured.

A run publishes a number of messages and then reads and acknowledges the same number, each timed
by itself. One short run warms up and tells how many messages fill `seconds`; the median of the
runs after it is the figure, the slowest and the fastest are its spread.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import Peer

PAYLOAD_BYTES = 512
PAYLOAD_VARIANTS = 1000
IN_FLIGHT = (1, 100, 1000)
RUNS = 3
RUN_SECONDS = 1.5
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


async def measure(
    peer: Peer, in_flight: int, *, runs: int = RUNS, seconds: float = RUN_SECONDS
) -> Measurement:
    """Median rates of a started peer; each run publishes for about `seconds`."""
    warm_up = max(WARM_UP_MESSAGES, WARM_UP_BATCHES * in_flight)
    publish_seconds = await peer.publish(warm_up, in_flight)
    await peer.consume(warm_up, in_flight)
    batches = max(1, round(warm_up / publish_seconds * seconds / in_flight))
    messages = batches * in_flight

    published: list[float] = []
    consumed: list[float] = []
    for _ in range(runs):
        published.append(messages / await peer.publish(messages, in_flight))
        consumed.append(messages / await peer.consume(messages, in_flight))
    return Measurement(
        peer.name, in_flight, _summarise(published, messages), _summarise(consumed, messages)
    )


async def measure_peer(
    peer: Peer,
    data_dir: Path,
    *,
    in_flight: Sequence[int] = IN_FLIGHT,
    runs: int = RUNS,
    seconds: float = RUN_SECONDS,
    on_measurement: Callable[[Measurement], None] = lambda measurement: None,
) -> list[Measurement]:
    """Start the peer with an empty store, measure it at each number in flight, stop it.

    The peer is stopped and its files are removed whether or not a measurement failed.
    """
    measurements: list[Measurement] = []
    try:
        await peer.start(data_dir)
        for number in in_flight:
            measurement = await measure(peer, number, runs=runs, seconds=seconds)
            measurements.append(measurement)
            on_measurement(measurement)
    finally:
        await peer.stop()
    return measurements


def _summarise(rates: list[float], messages: int) -> Rate:
    return Rate(statistics.median(rates), min(rates), max(rates), messages)
