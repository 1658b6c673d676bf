"""Round trips: a message is published, on disk, delivered to a consumer, and confirmed by it.

A peer has a producer and a consumer, both connected to one server over loopback, in the process of
the benchmark. `in_flight` messages go out together; when the last of them is confirmed, the next
ones do.
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


@contextlib.contextmanager
def clocked() -> Iterator[list[float]]:
    """A list that holds the seconds of the block once it is over."""
    seconds: list[float] = []
    begin = time.perf_counter()
    yield seconds
    seconds.append(time.perf_counter() - begin)
