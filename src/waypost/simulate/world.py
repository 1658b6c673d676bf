"""What models act on: the relay, the virtual clock, an agenda, payloads and message quotas.

Rule 1  Only the driver waits. Models are processes: generators that yield the instant at which
        they continue (µs since the epoch), or an awaitable of the relay whose result they are sent.
Rule 2  Every message has an instant of its own; the clock advances a little with each.
Rule 3  Randomness comes from generators seeded by name. Nothing else is random.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Generator
from itertools import accumulate, count
from random import Random
from typing import Any

from msgspec import Raw

from waypost.relay.relay import Draft, Relay
from waypost.simulate.options import SimulationOptions
from waypost.testing import ManualClock
from waypost.wire.payloads import encode_payload
from waypost.wire.results import PublishResult

Process = Generator[int | Awaitable[Any], Any, None]

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US

_LAST_MINUTES_US = 20 * MINUTE_US
"""After the last message: time to read it and to finish work in progress."""

_GAP_US = 250
"""Between messages that one agent sends in a burst."""

_CURVE_STEP_US = 15 * MINUTE_US
_PEAK_HOUR = 15
_SWING = 0.8
"""The peak has 1.8 times the mean traffic, twelve hours later there is 0.2 times the mean."""

_VOCABULARY = (
    "order invoice refund ticket status report please check done failed retry the a of for with"
    " customer payment shipment delayed today tomorrow agent summary draft review approved"
)
_WORDS = tuple(_VOCABULARY.split())
_POOL = 512
_SHORT_MIN, _SHORT_MAX = 48, 950
_LONG_MIN, _LONG_MAX = 4_500, 12_000
"""In characters; long payloads do not fit into a journal line and go to the body file."""


class World:
    """One simulated relay and everything around it."""

    def __init__(self, relay: Relay, clock: ManualClock, options: SimulationOptions) -> None:
        self.relay = relay
        self.clock = clock
        self.options = options
        self.start_us = options.start_us
        self.end_us = options.start_us + options.span_us - _LAST_MINUTES_US
        self.daily_curve = DailyCurve(self.start_us, self.end_us - self.start_us)
        self.payloads = Payloads(self.random("payloads"))
        self.agenda: list[tuple[int, int, Process]] = []
        self.sent = 0
        self.uncommitted = 0
        """The number of recorded events that may not be on disk yet."""
        self.at_the_end: list[Callable[[], None]] = []
        self._tickets = count()

    def random(self, name: str) -> Random:
        """Return a random generator that depends on the seed and on `name` only."""
        return Random(f"{self.options.seed}/{name}")

    def begin(self, process: Process, at_us: int = 0) -> None:
        """Schedule a process for `at_us`, or for now if that has passed."""
        heapq.heappush(self.agenda, (at_us, next(self._tickets), process))

    def post(self, draft: Draft) -> PublishResult:
        """Publish a message now.

        Its payload is valid JSON text: from the pool, or forwarded from another message.
        """
        self.clock.advance_us(_GAP_US)
        content = draft.payload
        assert isinstance(content, Raw)
        result = self.relay.submit(draft, bytes(content))
        self.sent += 1
        self.uncommitted += 1 + result.delivered_to
        return result


class Quota:
    """The messages that one model may send, spread over the days."""

    def __init__(self, world: World, random: Random, total: int) -> None:
        self.random = random
        self.total = self.left = total
        self._world = world
        self._post: Callable[[Draft], PublishResult] = world.post

    def due_us(self) -> int:
        """Return the instant of the next message, following the daily curve."""
        done = self.total - self.left + self.random.random()
        return self._world.daily_curve.instant_us(done / self.total)

    def send(self, draft: Draft) -> PublishResult | None:
        """Publish a message, unless the quota is used up."""
        if self.left <= 0:
            return None
        self.left -= 1
        return self._post(draft)

    def split(self, parts: int) -> list["Quota"]:
        """Split this quota into several of about equal size, of at least one message each."""
        parts = max(1, min(parts, self.total))
        sizes = [self.total * (at + 1) // parts - self.total * at // parts for at in range(parts)]
        self.left = 0
        return [Quota(self._world, self.random, size) for size in sizes]


class DailyCurve:
    """Spreads traffic over `span_us` of time from `start_us`: busy afternoons, quiet nights."""

    def __init__(self, start_us: int, span_us: int) -> None:
        steps = max(1, math.ceil(span_us / _CURVE_STEP_US))
        self._start_us = start_us
        self._step_us = span_us / steps
        weights = [_intensity(start_us + (at + 0.5) * self._step_us) for at in range(steps)]
        whole = sum(weights)
        self._ends = [end / whole for end in accumulate(weights)]

    def instant_us(self, share: float) -> int:
        """Return the instant at which `share` (0.0 to 1.0) of all traffic has passed."""
        step = min(bisect_right(self._ends, share), len(self._ends) - 1)
        before = self._ends[step - 1] if step else 0.0
        within = (share - before) / (self._ends[step] - before)
        return self._start_us + int((step + min(within, 1.0)) * self._step_us)


class Payloads:
    """A pool of JSON payloads, created once and reused; about one in a hundred is long."""

    def __init__(self, random: Random) -> None:
        self._random = random
        ratio = _SHORT_MAX / _SHORT_MIN
        short = [_payload(random, int(_SHORT_MIN * ratio ** random.random())) for _ in range(_POOL)]
        self._long = [_payload(random, random.randint(_LONG_MIN, _LONG_MAX)) for _ in range(16)]
        self._any = [*short, *self._long[:4]]

    def any(self) -> Raw:
        """Return a payload, mostly a short one: 64 B to 1 KB."""
        return self._any[int(self._random.random() * len(self._any))]

    def long(self) -> Raw:
        """Return a payload of 4.5 to 12 KB."""
        return self._long[int(self._random.random() * len(self._long))]


def _intensity(at_us: float) -> float:
    hour = at_us / HOUR_US % 24
    return 1 + _SWING * math.cos((hour - _PEAK_HOUR) / 12 * math.pi)


def _payload(random: Random, length: int) -> Raw:
    words: list[str] = []
    so_far = 0
    while so_far < length:
        word = random.choice(_WORDS)
        words.append(word)
        so_far += len(word) + 1
    text = " ".join(words)[:length]
    return Raw(encode_payload({"text": text, "number": random.randrange(10_000)}))
