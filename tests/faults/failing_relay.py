"""A relay whose consumer fails on every message, in its own process, to be killed by a test.

    python failing_relay.py DIRECTORY

Every confirmation is written to standard output at once, one line each:

    open                         the relay is open
    publish ID                   a publish returned
    nack ID ATTEMPT              the nack of that attempt returned
"""

import asyncio
import os
import sys
from pathlib import Path

from waypost import CircuitBreakerConfig, RateLimitConfig, RedeliveryConfig, Relay, Settings
from waypost.relay.state import checkpoints

MESSAGES = 40
DELIVERIES = 4
SETTINGS = Settings(
    storage="journal",
    rate_limit=RateLimitConfig(enabled=False),
    circuit_breaker=CircuitBreakerConfig(enabled=False),
    redelivery=RedeliveryConfig(max_deliveries=DELIVERIES, first_delay_ms=1, max_delay_ms=8),
)


def say(*words: object) -> None:
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


async def main(directory: Path) -> None:
    async with Relay(directory, settings=SETTINGS) as relay:
        say("open")
        if relay.get_endpoint("agent.a") is None:
            relay.register_endpoint("agent.a")
            for number in range(MESSAGES):
                sent = await relay.publish("agent.a", number, sender="agent.b")
                say("publish", sent.message_id)
        while True:
            for one in await relay.lease("agent.a", limit=3, wait=1.0):
                await relay.nack("agent.a", one.id, error=f"error {one.attempt}")
                say("nack", one.id, one.attempt)


if __name__ == "__main__":
    checkpoints._INTERVAL_S = 0.01  # so that kills also hit a checkpoint
    asyncio.run(main(Path(sys.argv[1])))
