"""How time passes: the driver owns relay and clock, and lets each process act at its instant.

Rule 1  The clock only goes on, from one process of the agenda to the next. The relay's own timers
        (sweeps, leases) run on the way, as in life.
Rule 2  What is recorded is settled, that is on disk and with the handlers done, before more than a
        tick of virtual time has passed. Mail can be read once it is settled.
Rule 3  Nothing happens while the driver waits but what the relay does by itself: that makes the
        same arguments give the same decisions.
"""

import asyncio
import heapq
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from waypost.relay.data_dir import DataDir
from waypost.relay.relay import Relay
from waypost.simulate.agents import hire_crowd
from waypost.simulate.models import MODELS
from waypost.simulate.models.model import Cast
from waypost.simulate.operator import operate
from waypost.simulate.options import SimulationOptions
from waypost.simulate.scenarios import portions
from waypost.simulate.settings import config_file, simulated_settings
from waypost.simulate.summary import Summary
from waypost.simulate.world import MINUTE_US, SECOND_US, Portion, Process, World
from waypost.testing import ManualClock
from waypost.wire.envelopes import instant

OnProgress = Callable[[int, int], None]

_TICK_MESSAGES = 256
_TICK_MIN_US, _TICK_MAX_US = SECOND_US // 4, 45 * SECOND_US
_UNSETTLED_MAX = 1000
"""Well below what the journal writes in one batch, so that a settled tick is one commit."""


def simulate(
    options: SimulationOptions, on_progress: OnProgress = lambda done, total: None
) -> Summary:
    """Make `options.out` a data directory with the journal of a simulated relay, sealed.

    `on_progress` hears how many messages of how many were sent. Raises `InvalidInput` for options
    that make no sense, before anything is written, and `DataDirUnusable` where none can be made.
    Starts an event loop of its own.
    """
    options.check()
    with _quiet():
        return asyncio.run(Simulation(options, on_progress).run())


class Simulation:
    """One run of one scenario."""

    def __init__(self, options: SimulationOptions, on_progress: OnProgress) -> None:
        self._options = options
        self._on_progress = on_progress
        self._clock = ManualClock(options.start_us)
        tick_us = options.span_us * _TICK_MESSAGES // options.messages
        self._tick_us = max(_TICK_MIN_US, min(tick_us, _TICK_MAX_US))

    async def run(self) -> Summary:
        """Live through it, from opening the relay to closing it."""
        options, began = self._options, time.perf_counter()
        settings = simulated_settings(options.span_us)
        data = DataDir(options.out)
        data.create()
        data.config.write_bytes(config_file(settings))
        async with Relay(options.out, settings=settings, clock=self._clock) as relay:
            world = World(relay, self._clock, options)
            _populate(world)
            await self._live(world)
            await _wind_up(world)
            seconds = time.perf_counter() - began
            return _summary(world, seconds)

    async def _live(self, world: World) -> None:
        """Go through the agenda until nobody has anything left to do."""
        agenda, settle_at_us = world.agenda, 0
        while True:
            due_us = agenda[0][0] if agenda else None
            late = due_us is None or due_us >= settle_at_us or world.unsettled >= _UNSETTLED_MAX
            if world.unsettled and late:
                await self._settle(world)  # which may put reading on the agenda
                continue
            if due_us is None:
                return
            if not world.unsettled:
                settle_at_us = due_us + self._tick_us
            _, ticket, process = heapq.heappop(agenda)
            if due_us > self._clock.now_us:
                self._clock.advance_us(due_us - self._clock.now_us)
            step = next(process, None)
            if step is not None and not isinstance(step, int):
                step = await _wait_for(process, step)
            if step is not None:
                heapq.heappush(agenda, (step, ticket, process))

    async def _settle(self, world: World) -> None:
        world.unsettled = 0
        await world.relay.idle()
        self._on_progress(world.sent, self._options.messages)


async def _wait_for(process: Process, step: Awaitable[Any]) -> int | None:
    """Await for a process what it needs; gives when it goes on, or None at its end."""
    following: int | Awaitable[Any] = step
    while not isinstance(following, int):
        try:
            following = process.send(await following)
        except StopIteration:
            return None
    return following


def _populate(world: World) -> None:
    """Hire the crowd and let every model of the scenario begin."""
    agents = world.options.agents
    sizes = portions(world.options.scenario, world.options.messages)
    models = {name: MODELS[name] for name in sizes}
    crowd = hire_crowd(world, agents - sum(model.hired(agents) for model in models.values()))
    for name, model in models.items():
        if sizes[name]:
            cast = Cast(world, crowd, model.groups(agents))
            model.act(cast, Portion(world, name, sizes[name]))
    world.begin(operate(world), world.start_us)


async def _wind_up(world: World) -> None:
    """Everyone goes, the relay sweeps once more, and the journal is sealed.

    Refusals of a flood that are only counted are written by a sweep after their minute.
    """
    for leave in world.at_the_end:
        leave()
    interval_us = world.relay.settings.housekeeping.sweep_interval_ms * 1000
    world.clock.advance_us(interval_us + MINUTE_US)
    await world.relay.idle()
    await world.relay.seal_journal()


def _summary(world: World, seconds: float) -> Summary:
    options, numbers = world.options, world.relay.metrics()
    events = dict(numbers.events)
    return Summary(
        data_dir=str(options.out),
        scenario=options.scenario,
        agents=options.agents,
        seed=options.seed,
        messages=world.sent,
        accepted=events.pop("accepted", 0),
        rejected=numbers.rejected,
        events=events,
        pending=numbers.by_status["pending"],
        dead=numbers.by_status["dead"],
        begin=instant(options.start_us),
        end=instant(world.clock.now_us),
        seconds=seconds,
        messages_per_second=world.sent / seconds,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Handlers that raise and breakers that open are what was asked for: no need to warn of it."""
    log = logging.getLogger("waypost.relay")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
