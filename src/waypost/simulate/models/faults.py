"""Faults: crashing handlers, message loops, and agents that are offline for hours.

Crashes: an agent's handler raises for a while. With the served relay's breaker (5 failures open
it, 30 s until a probe, 2 good probes close it) an episode is: deliveries fail, messages are
rejected, a probe fails, the agent recovers, probes succeed.

Loops: agents in a ring forward every message until its budget stops it. In a small ring the
message would return to an agent of its chain (cycle detected); in a large one it first runs out of
hops. Some start with a small budget and run out of calls.

Absences: messages to an offline agent stay pending; some expire, the rest is read on return.
"""

from waypost.relay.relay import Draft
from waypost.simulate.agents import Agent, OnMessage
from waypost.simulate.models.model import Actors, Model
from waypost.simulate.world import HOUR_US, MINUTE_US, SECOND_US, Process, Quota
from waypost.wire.envelopes import Envelope

_FAILING, _REJECTED, _HEALTHY = 7, 4, 12
_COOLDOWN_US = 31 * SECOND_US

_SMALL_RING, _LARGE_RING = 3, 6
_FEW_CALLS = 0.15

_PERIOD_US = 8 * HOUR_US
_URGENT = 0.3
_URGENT_FOR_MS = 20 * 60_000
"""The time to live of urgent messages."""


class _CrashingEndpoint:
    """An endpoint with a handler in the relay's own process."""

    def __init__(self, actors: Actors, subject: str) -> None:
        self.subject = subject
        self.failing = False
        actors.world.relay.register_endpoint(subject)
        actors.world.relay.subscribe(subject, self._handle)

    def _handle(self, envelope: Envelope) -> None:
        if self.failing:
            raise ConnectionError("the database behind this agent is away")


def _start_crashes(actors: Actors, quota: Quota) -> None:
    for number, part in enumerate(quota.split(actors.groups)):
        endpoint = _CrashingEndpoint(actors, f"agent.shaky.ledger-{number}")
        actors.world.begin(_episodes(actors, part, endpoint), part.due_us())


def _episodes(actors: Actors, quota: Quota, endpoint: _CrashingEndpoint) -> Process:
    world = actors.world

    def write(count: int) -> None:
        sender = actors.pick(quota).subject
        for _ in range(count):
            quota.send(Draft(endpoint.subject, world.payloads.any(), sender=sender))

    while quota.left:
        endpoint.failing = True
        write(_FAILING)
        yield world.relay.idle()
        yield world.clock.now_us + 2 * SECOND_US
        write(_REJECTED)
        yield world.clock.now_us + _COOLDOWN_US
        write(1)
        yield world.relay.idle()
        endpoint.failing = False
        yield world.clock.now_us + _COOLDOWN_US
        for _ in range(2):
            write(1)
            yield world.relay.idle()
        for _ in range(_HEALTHY // 4):
            write(4)
            yield world.clock.now_us + int(quota.random.random() * 60 * SECOND_US)
        yield quota.due_us()


def _start_loops(actors: Actors, quota: Quota) -> None:
    rings = [
        _create_ring(actors, quota, f"agent.ring-{number}-{size}", size)
        for number in range(actors.groups)
        for size in (_SMALL_RING, _LARGE_RING)
    ]
    actors.world.begin(_start_messages(actors, quota, rings), quota.due_us())


def _create_ring(actors: Actors, quota: Quota, prefix: str, size: int) -> list[Agent]:
    ring = [Agent(actors.world, f"{prefix}.node-{index}") for index in range(size)]
    for index, agent in enumerate(ring):
        agent.subscribe(_forward_to(quota, agent, ring[(index + 1) % size]))
        agent.connect()
    return ring


def _forward_to(quota: Quota, agent: Agent, following: Agent) -> OnMessage:
    def forward(envelope: Envelope) -> None:
        quota.send(
            Draft(following.subject, envelope.payload, sender=agent.subject, parent=envelope)
        )

    return forward


def _start_messages(actors: Actors, quota: Quota, rings: list[list[Agent]]) -> Process:
    random = quota.random
    while quota.left:
        ring = random.choice(rings)
        budget = {"call_budget_remaining": 2} if random.random() < _FEW_CALLS else None
        sender = actors.pick(quota).subject
        quota.send(
            Draft(ring[0].subject, actors.world.payloads.any(), sender=sender, budget=budget)
        )
        yield quota.due_us()


def _start_absences(actors: Actors, quota: Quota) -> None:
    for number, part in enumerate(quota.split(actors.groups)):
        remote = Agent(actors.world, f"agent.remote.field-{number}")
        remote.connect()
        actors.world.begin(_come_and_go(actors, part, remote), actors.world.start_us)


def _come_and_go(actors: Actors, quota: Quota, remote: Agent) -> Process:
    world, random = actors.world, quota.random
    periods = max(1, world.options.span_us // _PERIOD_US)
    each = -(-quota.total // periods)
    period_us = world.options.span_us // periods
    for period in range(periods):
        begin_us = world.start_us + period * period_us + int(random.random() * period_us / 4)
        away_us = int(period_us * (0.3 + 0.3 * random.random()))
        yield begin_us
        remote.disconnect()
        for at_us in sorted(begin_us + int(random.random() * away_us) for _ in range(each)):
            yield at_us
            _write_to(actors, quota, remote)
        yield begin_us + away_us + MINUTE_US
        remote.connect()


def _write_to(actors: Actors, quota: Quota, remote: Agent) -> None:
    world = actors.world
    urgent = quota.random.random() < _URGENT
    budget = {"ttl": world.clock.now_us // 1000 + _URGENT_FOR_MS} if urgent else None
    sender = actors.pick(quota).subject
    quota.send(Draft(remote.subject, world.payloads.any(), sender=sender, budget=budget))


CRASHES = Model(_start_crashes, group_size=1)
LOOPS = Model(_start_loops, group_size=_SMALL_RING + _LARGE_RING)
ABSENCES = Model(_start_absences, group_size=1, one_in=20)
