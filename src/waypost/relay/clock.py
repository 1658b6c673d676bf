"""Time for the relay: the one place that asks the system what time it is.

A clock is any callable that gives integer microseconds since the epoch. A clock that also has
`call_at` (as `waypost.testing.ManualClock` does) drives every wait of the relay itself; with any
other clock, waits run on the event loop.
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
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


def to_microseconds(name: str, seconds: float) -> int:
    """A length of time that a caller gave as `name`, or `InvalidInput` when it makes no sense."""
    given: object = seconds
    if isinstance(given, int | float) and 0 <= given <= wait_max_s:
        return int(given * 1_000_000)
    raise InvalidInput(f"{name} must be 0 to {wait_max_s:,} seconds, not {seconds!r}")


@runtime_checkable
class DrivenClock(Protocol):
    """A clock that is moved by hand and says when an instant is reached."""

    def call_at(self, at_us: int, callback: Callable[[], None]) -> Cancel: ...


class Timers:
    """Calls back on the event loop when an instant of the relay's time is reached.

    `now` gives that time: the clock's, unless the clock was set back.
    """

    def __init__(self, clock: Clock, now: Clock) -> None:
        self._clock = clock
        self._now = now

    def call_at(self, at_us: int, callback: Callable[[], None]) -> Cancel:
        """Call `callback` at `at_us`, or soon if that has passed. Returns a cancel function."""
        delay_us = max(0, at_us - self._now())
        if isinstance(self._clock, DrivenClock):
            return self._clock.call_at(self._clock() + delay_us, callback)
        return asyncio.get_running_loop().call_later(delay_us / 1_000_000, callback).cancel

    async def wait(self, future: asyncio.Future[None], until_us: int) -> bool:
        """Wait for `future`, at most until `until_us`; whether it was done in time."""

        def give_up() -> None:
            future.cancel()

        cancel = self.call_at(until_us, give_up)
        try:
            await asyncio.wait([future])
        finally:
            cancel()
        return not future.cancelled()
