"""Load at a fixed rate: messages are sent when they are due, however slow the answers are.

Each message has a time at which it is due. All that are due are sent together; while one call
waits for its confirmation, the next one is made. A latency begins when the message is due, so
that the wait of a message behind a slow one counts.
"""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from bench.peers import PeerError
from bench.round_trips import PacedPeer

DRAIN_SECONDS_MAX = 60.0


@dataclass(slots=True)
class Latencies:
    """ms from due to confirmed at the sender, and to arrived at the recipient."""

    confirmed_ms: list[float] = field(default_factory=list)
    arrived_ms: list[float] = field(default_factory=list)


async def pace(peer: PacedPeer, rate: float, seconds: float) -> Latencies:
    """Send `rate` messages a second for `seconds`; return when all have arrived.

    A recipient gets messages in the order in which they were sent.
    """
    found = Latencies()
    waiting: deque[float] = deque()
    total = max(1, round(rate * seconds))

    def arrive(count: int) -> None:
        now = time.perf_counter()
        found.arrived_ms += [(now - waiting.popleft()) * 1000 for _ in range(count)]
        if len(found.arrived_ms) == total:
            everything.set()

    async def send(due: list[float]) -> None:
        await peer.send(len(due))
        now = time.perf_counter()
        found.confirmed_ms += [(now - one) * 1000 for one in due]

    everything = asyncio.Event()
    async with peer.reading(arrive):
        sending: list[asyncio.Task[None]] = []
        begin, sent = time.perf_counter(), 0
        while sent < total:
            now = time.perf_counter()
            until = min(total, int((now - begin) * rate) + 1)
            due = [begin + number / rate for number in range(sent, until)]
            waiting.extend(due)
            sending.append(asyncio.create_task(send(due)))
            sent = until
            await asyncio.sleep(max(0.0, begin + sent / rate - time.perf_counter()))
        await asyncio.gather(*sending)
        try:
            async with asyncio.timeout(DRAIN_SECONDS_MAX):
                await everything.wait()
        except TimeoutError:
            raise PeerError(f"{peer.name}: {len(waiting):,} of {total:,} did not arrive") from None
    return found
