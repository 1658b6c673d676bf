"""What models act on: agents with mailboxes, a share of the messages, and an agenda.

Rule 1  Only the driver waits. Models are processes: generators that yield when they go on, as µs
        since the epoch, or something of the relay's to await, whose result they are given.
Rule 2  Every message has an instant of its own; the clock moves a little with each.
Rule 3  Randomness comes from generators seeded by name. Nothing else is left to chance.
"""

import heapq
from collections.abc import Awaitable, Callable, Generator
from itertools import count
from random import Random
from typing import Any

from msgspec import Raw

from waypost.relay.delivery.drafts import Draft
from waypost.relay.relay import Relay
from waypost.simulate.daytime import Daytime
from waypost.simulate.options import SimulationOptions
from waypost.simulate.payloads import Payloads
from waypost.testing import ManualClock
from waypost.wire.results import PublishResult

Process = Generator[int | Awaitable[Any], Any, None]

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US

_LAST_MINUTES_US = 20 * MINUTE_US
"""After the last message: time to read it and to bring to an end what is under way."""

_GAP_US = 250
"""Between messages that one agent sends in one go."""


class World:
    """One simulated relay and everything around it."""

    def __init__(self, relay: Relay, clock: ManualClock, options: SimulationOptions) -> None:
        self.relay = relay
        self.clock = clock
        self.options = options
        self.start_us = options.start_us
        self.end_us = options.start_us + options.span_us - _LAST_MINUTES_US
        self.daytime = Daytime(self.start_us, self.end_us - self.start_us)
        self.payloads = Payloads(self.random("payloads"))
        self.agenda: list[tuple[int, int, Process]] = []
        self.sent = 0
        self.unsettled = 0
        """How much was recorded that may not be on disk yet."""
        self.at_the_end: list[Callable[[], None]] = []
        self._tickets = count()

    def random(self, name: str) -> Random:
        """A generator of its own for whatever is called `name`."""
        return Random(f"{self.options.seed}/{name}")

    def begin(self, process: Process, at_us: int = 0) -> None:
        """Let a process run from `at_us` on, at once if that has passed."""
        heapq.heappush(self.agenda, (at_us, next(self._tickets), process))

    def post(self, draft: Draft) -> PublishResult:
        """Publish a message now. Its payload is JSON text, known to be good: from the pool, or
        from a message that came out of it."""
        self.clock.advance_us(_GAP_US)
        content = draft.payload
        assert isinstance(content, Raw)
        result = self.relay.submit(draft, bytes(content))
        self.sent += 1
        self.unsettled += 1 + result.delivered_to
        return result


class Portion:
    """The messages that one model may send, spread over the days."""

    def __init__(self, world: World, name: str, total: int) -> None:
        self.random: Random = world.random(name)
        self.total = self.left = total
        self._world = world
        self._post: Callable[[Draft], PublishResult] = world.post

    def due_us(self) -> int:
        """When the next message is due: as much of the day's traffic must have passed."""
        done = self.total - self.left + self.random.random()
        return self._world.daytime.instant_us(done / self.total)

    def send(self, draft: Draft) -> PublishResult | None:
        """Publish a message, unless the portion is used up."""
        if self.left <= 0:
            return None
        self.left -= 1
        return self._post(draft)

    def split(self, parts: int) -> list["Portion"]:
        """This portion as several of about the same size; at least one message each."""
        parts = max(1, min(parts, self.total))
        sizes = [self.total * (at + 1) // parts - self.total * at // parts for at in range(parts)]
        made = []
        for size in sizes:
            one = Portion(self._world, "", size)
            one.random = self.random
            made.append(one)
        self.left = 0
        return made
