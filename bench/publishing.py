"""Publishes of one embedded relay for a certain time, for benchmarks that compare two relays."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal

from bench.embedded import open_settings
from waypost import Relay

IN_FLIGHT = 100


@asynccontextmanager
async def open_relay(
    scratch: Path, durability: Literal["fsync", "async"] = "fsync"
) -> AsyncIterator[tuple[Relay, Path]]:
    """Open a relay with `storage: journal` on a new directory; yield both."""
    directory = Path(tempfile.mkdtemp(prefix="waypost-", dir=scratch))
    async with Relay(directory, settings=open_settings("journal", durability)) as relay:
        yield relay, directory


async def publish_for(
    relay: Relay, seconds: float, message: Callable[[int], dict[str, Any]]
) -> float:
    """Publish for `seconds`, 100 in flight; return the µs of one.

    `message` returns the arguments of the publish with this number, counted from 0.
    """
    numbers = count()
    begin = time.perf_counter()
    end = begin + seconds

    async def worker() -> int:
        done = 0
        while not done or time.perf_counter() < end:
            await relay.publish(**message(next(numbers)))
            done += 1
        return done

    published = sum(await asyncio.gather(*(worker() for _ in range(IN_FLIGHT))))
    return (time.perf_counter() - begin) / published * 1_000_000
