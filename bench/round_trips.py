"""Round trips: a message is published, synced, delivered to a consumer, and acknowledged.

A peer has a producer and a consumer, both in the benchmark's process and connected to one server
over loopback. `in_flight` messages are sent together; after the last acknowledgement, the next
`in_flight` are sent.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol


class RoundTripPeer(Protocol):
    """A server under measurement, with a producer and a consumer."""

    @property
    def name(self) -> str:
        """The name in tables and JSON."""
        ...

    def available(self) -> str | None:
        """Return None if the peer can run here, else what is missing."""
        ...

    async def start(self, data_dir: Path) -> None:
        """Start with an empty store on `data_dir`'s filesystem; clean up on failure."""
        ...

    async def round_trips(self, count: int, in_flight: int) -> float:
        """Return the seconds for `count` acknowledged messages, `in_flight` at a time."""
        ...

    async def stop(self) -> None:
        """Stop everything and remove the files. Safe to call twice, or without a start."""
        ...


@contextlib.contextmanager
def stopwatch() -> Iterator[list[float]]:
    """Yield a list that gets the seconds of the block at its end."""
    seconds: list[float] = []
    begin = time.perf_counter()
    yield seconds
    seconds.append(time.perf_counter() - begin)
