"""Agents that go away for hours and come back: mail waits, some of it expires, the rest is read."""

from waypost.relay.delivery.drafts import Draft
from waypost.simulate.agents import Agent
from waypost.simulate.models.model import Cast, Model
from waypost.simulate.world import HOUR_US, MINUTE_US, Portion, Process

_PERIOD_US = 8 * HOUR_US
_URGENT = 0.3
_URGENT_FOR_MS = 20 * 60_000
"""Some messages are worth nothing after this."""


def _act(cast: Cast, portion: Portion) -> None:
    for number, part in enumerate(portion.split(cast.groups)):
        remote = Agent(cast.world, f"agent.remote.field-{number}")
        remote.arrive()
        cast.world.begin(_come_and_go(cast, part, remote), cast.world.start_us)


def _come_and_go(cast: Cast, portion: Portion, remote: Agent) -> Process:
    world, random = cast.world, portion.random
    periods = max(1, world.options.span_us // _PERIOD_US)
    each = -(-portion.total // periods)
    period_us = world.options.span_us // periods
    for period in range(periods):
        begin_us = world.start_us + period * period_us + int(random.random() * period_us / 4)
        away_us = int(period_us * (0.3 + 0.3 * random.random()))
        yield begin_us
        remote.leave()
        for at_us in sorted(begin_us + int(random.random() * away_us) for _ in range(each)):
            yield at_us
            _write(cast, portion, remote)
        yield begin_us + away_us + MINUTE_US
        remote.arrive()


def _write(cast: Cast, portion: Portion, remote: Agent) -> None:
    world = cast.world
    urgent = portion.random.random() < _URGENT
    budget = {"ttl": world.clock.now_us // 1000 + _URGENT_FOR_MS} if urgent else None
    sender = cast.anyone(portion).subject
    portion.send(Draft(remote.subject, world.payloads.any(), sender, None, budget))


ABSENCES = Model(_act, group_size=1, one_in=20)
