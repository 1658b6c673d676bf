"""Round trips: a message is published, synced, delivered to a consumer, and acknowledged.

A peer has a producer and a consumer, both in the benchmark's process and connected to one server
over loopback. `in_flight` messages are sent together; after the last acknowledgement, the next
`in_flight` are sent.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from bench.peers import Contestant


class RoundTripPeer(Contestant, Protocol):
    """A server under measurement, with a producer and a consumer."""

    async def round_trips(self, count: int, in_flight: int) -> float:
        """Return the seconds for `count` acknowledged messages, `in_flight` at a time."""
        ...


class PacedPeer(RoundTripPeer, Protocol):
    """A peer that can also send at a certain rate: `bench.pace` decides when."""

    async def send(self, count: int) -> None:
        """Send `count` messages now; return when the server has confirmed all of them."""
        ...

    def reading(self, on_arrival: Callable[[int], None]) -> AbstractAsyncContextManager[None]:
        """Read and acknowledge meanwhile; call with the number of messages that arrived."""
        ...


@contextlib.contextmanager
def stopwatch() -> Iterator[list[float]]:
    """Yield a list that gets the seconds of the block at its end."""
    seconds: list[float] = []
    begin = time.perf_counter()
    yield seconds
    seconds.append(time.perf_counter() - begin)
