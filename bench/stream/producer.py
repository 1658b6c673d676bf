"""A relay with a fixed number of events a second, until SIGTERM: publish, lease and ack.

python -m bench.stream.producer DATA_DIR EVENTS_PER_SECOND

What could not be written in time is not made up for, so that a slow moment makes no burst.
"""

import asyncio
import signal
import sys
import time
from itertools import count
from pathlib import Path

from bench.embedded import open_settings
from bench.workload import PAYLOAD_VARIANTS, make_payload
from waypost import Relay

ENDPOINTS = 40
SENDERS = 200
EVENTS_PER_MESSAGE = 3
TURN_S = 0.1


async def produce(data: Path, rate: float) -> None:
    """Write `rate` events a second."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    endpoints = [f"agent.inbox-{number:02d}" for number in range(ENDPOINTS)]
    payloads = [make_payload(index) for index in range(PAYLOAD_VARIANTS)]
    numbers = count()
    async with Relay(data, settings=open_settings()) as relay:
        for endpoint in endpoints:
            relay.register_endpoint(endpoint)
        owed, last = 0.0, time.monotonic()
        while not stop.is_set():
            now = time.monotonic()
            owed += min(now - last, 2 * TURN_S) * rate / EVENTS_PER_MESSAGE
            last = now
            new = [next(numbers) for _ in range(int(owed))]
            owed -= len(new)
            await relay.publish_many(
                {
                    "subject": endpoints[number % ENDPOINTS],
                    "payload": payloads[number % PAYLOAD_VARIANTS],
                    "sender": f"agent.sender-{number % SENDERS:03d}",
                }
                for number in new
            )
            await asyncio.gather(*(consume(relay, endpoint) for endpoint in endpoints))
            await asyncio.sleep(max(0.0, last + TURN_S - time.monotonic()))


async def consume(relay: Relay, endpoint: str) -> None:
    """Lease and acknowledge all messages of a mailbox."""
    leased = await relay.lease(endpoint, limit=1000)
    await relay.ack(endpoint, [envelope.id for envelope in leased])


if __name__ == "__main__":
    asyncio.run(produce(Path(sys.argv[1]), float(sys.argv[2])))
