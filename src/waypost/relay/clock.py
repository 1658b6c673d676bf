"""The clock of the relay; no other module of it reads the system time.

A clock is any callable that returns integer microseconds since the epoch. A clock that also has
`call_at` (as `waypost.testing.ManualClock` does) drives every timer of the relay; with any other
clock, timers run on the event loop.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from waypost.policy.bounds import wait_max_s
from waypost.policy.errors import InvalidInput

Clock = Callable[[], int]
Cancel = Callable[[], None]


def system_clock() -> int:
    """Return the system time in microseconds since the epoch."""
    return time.time_ns() // 1000


def to_microseconds(name: str, seconds: float) -> int:
    """Convert the duration of the parameter `name`; raise `InvalidInput` if it is out of range."""
    given: object = seconds
    if isinstance(given, int | float) and 0 <= given <= wait_max_s:
        return int(given * 1_000_000)
    raise InvalidInput(f"{name} must be 0 to {wait_max_s:,} seconds, not {seconds!r}")


@runtime_checkable
class DrivenClock(Protocol):
    """A clock that is advanced by hand and runs its own timers."""

    def call_at(self, at_us: int, callback: Callable[[], None]) -> Cancel: ...


class Timers:
    """Timers on the event loop, in the relay's time.

    `now` returns that time; it differs from the clock's after the clock was set back.
    """

    def __init__(self, clock: Clock, now: Clock) -> None:
        self._driven: DrivenClock | None = None
        if isinstance(clock, DrivenClock):  # asked once: it is slow
            self._driven = clock
        self._clock = clock
        self._now = now

    def call_at(self, at_us: int, callback: Callable[[], None]) -> Cancel:
        """Call `callback` at `at_us`, or soon if that has passed; return a cancel function."""
        delay_us = max(0, at_us - self._now())
        if self._driven is not None:
            return self._driven.call_at(self._clock() + delay_us, callback)
        return asyncio.get_running_loop().call_later(delay_us / 1_000_000, callback).cancel

    async def wait(self, future: asyncio.Future[None], until_us: int) -> bool:
        """Wait for `future` until `until_us`; return whether it was done in time."""

        def give_up() -> None:
            future.cancel()

        cancel = self.call_at(until_us, give_up)
        try:
            await asyncio.wait([future])
        finally:
            cancel()
        return not future.cancelled()
