"""How time passes: the driver owns relay and clock, and runs each process at its instant.

Rule 1  The clock only advances, from one process of the agenda to the next. The relay's own timers
        (sweeps, leases) fire on the way, as in production.
Rule 2  Recorded events are committed, that is on disk and with their handlers done, before more
        than a tick of virtual time has passed. Messages can be read once they are committed.
Rule 3  While the driver waits, only the relay acts: so the same arguments give the same decisions.
"""

import asyncio
import heapq
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec

from waypost.relay.data_dir import DataDir, replace_file
from waypost.relay.relay import Relay
from waypost.simulate.agents import create_agents
from waypost.simulate.models import MODELS
from waypost.simulate.models.model import Actors
from waypost.simulate.options import (
    SimulationOptions,
    config_file,
    quota_sizes,
    simulated_settings,
)
from waypost.simulate.world import HOUR_US, MINUTE_US, SECOND_US, Process, Quota, World
from waypost.testing import ManualClock
from waypost.wire.envelopes import instant

OnProgress = Callable[[int, int], None]

_TICK_MESSAGES = 256
_TICK_MIN_US, _TICK_MAX_US = SECOND_US // 4, 45 * SECOND_US
_UNCOMMITTED_MAX = 1000
"""Well below what the journal writes in one batch, so that a tick is one commit."""

_OPERATOR_LISTS_MAX = 100
_OPERATOR_REDRIVES = 0.1
_OPERATOR_KEEPS = timedelta(hours=4)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """`messages` are publishes; `accepted` and `rejected` count mailboxes, so a publish to many
    endpoints counts many times. `events` counts what happened to stored messages, by kind.

    `begin` and `end` are on the virtual clock, `seconds` on the real one.
    """

    data_dir: str
    scenario: str
    agents: int
    seed: int
    messages: int
    accepted: int
    rejected: Mapping[str, int]
    events: Mapping[str, int]
    pending: int
    dead: int
    begin: datetime
    end: datetime
    seconds: float
    messages_per_second: float

    @property
    def elapsed(self) -> timedelta:
        """The duration on the real clock."""
        return timedelta(seconds=self.seconds)


def simulate(
    options: SimulationOptions, on_progress: OnProgress = lambda done, total: None
) -> Summary:
    """Create the data directory `options.out` with the sealed journal of a simulated relay.

    Calls `on_progress` with the number of messages sent and their total. Raises `InvalidInput` for
    invalid options, before anything is written, and `DataDirUnusable` where no directory can be
    created. Starts its own event loop.
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
        """Run the scenario, from opening the relay to closing it."""
        options, began = self._options, time.perf_counter()
        settings = simulated_settings(options.span_us)
        data = DataDir(options.out)
        data.create()
        replace_file(data.config, config_file(settings))
        async with Relay(options.out, settings=settings, clock=self._clock) as relay:
            world = World(relay, self._clock, options)
            _populate(world)
            await self._run_agenda(world)
            await _finish(world)
            seconds = time.perf_counter() - began
            return _summary(world, seconds)

    async def _run_agenda(self, world: World) -> None:
        """Run processes in order of time until the agenda is empty."""
        agenda, commit_at_us = world.agenda, 0
        while True:
            due_us = agenda[0][0] if agenda else None
            late = due_us is None or due_us >= commit_at_us or world.uncommitted >= _UNCOMMITTED_MAX
            if world.uncommitted and late:
                await self._commit(world)  # may put reading on the agenda
                continue
            if due_us is None:
                return
            if not world.uncommitted:
                commit_at_us = due_us + self._tick_us
            _, ticket, process = heapq.heappop(agenda)
            if due_us > self._clock.now_us:
                self._clock.advance_us(due_us - self._clock.now_us)
            step = next(process, None)
            if step is not None and not isinstance(step, int):
                step = await _wait_for(process, step)
            if step is not None:
                heapq.heappush(agenda, (step, ticket, process))

    async def _commit(self, world: World) -> None:
        world.uncommitted = 0
        await world.relay.idle()
        self._on_progress(world.sent, self._options.messages)


async def _wait_for(process: Process, step: Awaitable[Any]) -> int | None:
    """Await on behalf of a process; return when it continues, or None if it has ended."""
    following: int | Awaitable[Any] = step
    while not isinstance(following, int):
        try:
            following = process.send(await following)
        except StopIteration:
            return None
    return following


def _populate(world: World) -> None:
    """Create the ordinary agents and start every model of the scenario, and the operator."""
    total = world.options.agents
    sizes = quota_sizes(world.options.scenario, world.options.messages)
    models = {name: MODELS[name] for name in sizes}
    ordinary = total - sum(model.own_agents(total) for model in models.values())
    agents = create_agents(world, ordinary)
    for name, model in models.items():
        if sizes[name]:
            actors = Actors(world, agents, model.groups(total))
            model.start(actors, Quota(world, world.random(name), sizes[name]))
    world.begin(_operate(world), world.start_us)


def _operate(world: World) -> Process:
    """Review the dead letters every hour or two: redrive some, purge the old ones."""
    random, relay = world.random("operator"), world.relay
    while (at_us := world.clock.now_us + int((1 + random.random()) * HOUR_US)) < world.end_us:
        yield at_us
        dead_letters = yield relay.dead_letters(limit=_OPERATOR_LISTS_MAX)
        chosen = [one.envelope.id for one in dead_letters if random.random() < _OPERATOR_REDRIVES]
        if chosen:
            yield relay.redrive(chosen)
        yield relay.purge_dead_letters(older_than=_OPERATOR_KEEPS)


async def _finish(world: World) -> None:
    """Disconnect all agents, let the relay sweep once more, and seal the journal.

    A sweep writes the rejections of a flood that are only counted, after their minute is over.
    """
    for disconnect in world.at_the_end:
        disconnect()
    interval_us = world.relay.settings.housekeeping.sweep_interval_ms * 1000
    world.clock.advance_us(interval_us + MINUTE_US)
    await world.relay.idle()
    await world.relay.seal_journal()


def _summary(world: World, seconds: float) -> Summary:
    options, metrics = world.options, world.relay.metrics()
    events = dict(metrics.events)
    return Summary(
        data_dir=str(options.out),
        scenario=options.scenario,
        agents=options.agents,
        seed=options.seed,
        messages=world.sent,
        accepted=events.pop("accepted", 0),
        rejected=metrics.rejected,
        events=events,
        pending=metrics.by_status["pending"],
        dead=metrics.by_status["dead"],
        begin=instant(options.start_us),
        end=instant(world.clock.now_us),
        seconds=seconds,
        messages_per_second=world.sent / seconds,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings: raising handlers and open breakers are part of the scenario."""
    log = logging.getLogger("waypost.relay")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
