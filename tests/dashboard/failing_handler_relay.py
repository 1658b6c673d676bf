"""Serves a relay like `waypost serve`, with a handler that always fails, so that breakers open.

Arguments: the data directory and a port. Prints the URL.
"""

import asyncio
import signal
import sys
from pathlib import Path

import msgspec

from waypost import Envelope, RateLimitConfig
from waypost.policy.breakers import CircuitBreakerConfig
from waypost.server.context import SERVED_SETTINGS
from waypost.server.server import Listen, open_context, serve

SETTINGS = msgspec.structs.replace(
    SERVED_SETTINGS,
    storage="journal",
    durability="async",
    rate_limit=RateLimitConfig(enabled=False),
    circuit_breaker=CircuitBreakerConfig(failure_threshold=2),
)


def handle(envelope: Envelope) -> None:
    raise RuntimeError(str(envelope.payload))


async def main(data: Path, port: int) -> None:
    async with open_context(data, settings=SETTINGS) as context:
        context.relay.subscribe("service.>", handle)
        await serve(context, Listen(port=port), print_url)


def print_url(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


# The server passes the signal that stopped it on to the previous handler.
signal.signal(signal.SIGTERM, lambda number, frame: None)
asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
