"""Overload: a flooding sender, a slow consumer, and an inbox that runs out of bytes.

Flood: bursts far over the rate limit, all to one other agent.

Slow consumer: its mailbox fills until its senders, then all senders, are rejected. It leases a few
messages now and then, and sometimes works longer than the lease lasts, so that they are returned.
Every few hours it takes everything.

Overflow: several senders, each within its own quota, together exceed the bytes of an inbox; the
sender that holds the most loses its oldest message.
"""

from waypost.relay.relay import Draft
from waypost.simulate.agents import Agent
from waypost.simulate.models.model import Actors, Model
from waypost.simulate.world import MINUTE_US, SECOND_US, Process, Quota

_BURST_MIN, _BURST_MAX = 150, 4_000
_BURST_PER_SECOND = 200

_SLOW_SENDERS = 12
_EACH_MIN, _EACH_MAX = 18, 26
_LEASE_SIZES = (3, 5, 5, 10, 10, 10, 150)
_PAUSE_US = (20 * MINUTE_US, 40 * MINUTE_US)
_WORK_MAX_US, _TOO_LONG_US = 25 * SECOND_US, 35 * SECOND_US
"""A lease lasts 30 s."""

_TOO_LONG_EVERY = 4
"""Starting with the first time, so that it happens however few messages there are."""

_NACKED = 0.1

_BULK_SENDERS = 6
_BULK_ROUNDS = 5
_BULK_FETCH_MAX = 200


def _start_flood(actors: Actors, quota: Quota) -> None:
    for number, part in enumerate(quota.split(actors.groups)):
        flooder = Agent(actors.world, f"agent.wild.flooder-{number}")
        flooder.connect()
        actors.world.begin(_flood(actors, part, flooder), part.due_us())


def _flood(actors: Actors, quota: Quota, flooder: Agent) -> Process:
    burst = max(_BURST_MIN, min(quota.total // 8, _BURST_MAX))
    while quota.left:
        victim, left = actors.pick(quota), burst
        while left > 0 and quota.left:
            for _ in range(min(_BURST_PER_SECOND, left)):
                quota.send(
                    Draft(victim.subject, actors.world.payloads.any(), sender=flooder.subject)
                )
            left -= _BURST_PER_SECOND
            yield actors.world.clock.now_us + SECOND_US
        yield quota.due_us()


def _start_slow_consumer(actors: Actors, quota: Quota) -> None:
    for number, part in enumerate(quota.split(actors.groups)):
        slow = Agent(actors.world, f"agent.slow.archive-{number}")
        actors.world.begin(_fill(actors, part, slow), part.due_us())
        actors.world.begin(_consume_slowly(actors, part, slow), actors.world.start_us)


def _fill(actors: Actors, quota: Quota, slow: Agent) -> Process:
    while quota.left:
        for sender in actors.sample(quota, _SLOW_SENDERS):
            for _ in range(quota.random.randint(_EACH_MIN, _EACH_MAX)):
                quota.send(Draft(slow.subject, actors.world.payloads.any(), sender=sender.subject))
            yield actors.world.clock.now_us + int(quota.random.random() * 20 * SECOND_US)
        yield quota.due_us()


def _consume_slowly(actors: Actors, quota: Quota, slow: Agent) -> Process:
    world, random = actors.world, quota.random
    times = 0
    while (at_us := world.clock.now_us + random.randint(*_PAUSE_US)) < world.end_us:
        yield at_us
        leased = yield world.relay.lease(slow.subject, limit=random.choice(_LEASE_SIZES))
        if not leased:
            continue
        too_long = times % _TOO_LONG_EVERY == 0
        times += 1
        work_us = _TOO_LONG_US if too_long else int(random.random() * _WORK_MAX_US)
        yield world.clock.now_us + work_us
        ids = [envelope.id for envelope in leased]
        if random.random() < _NACKED:
            yield world.relay.nack(slow.subject, ids, delay=60.0)
        else:
            yield world.relay.ack(slow.subject, ids)


def _start_overflow(actors: Actors, quota: Quota) -> None:
    for number, part in enumerate(quota.split(actors.groups)):
        bulk = Agent(actors.world, f"agent.bulk.store-{number}")
        actors.world.begin(_overflow(actors, part, bulk), part.due_us())


def _overflow(actors: Actors, quota: Quota, bulk: Agent) -> Process:
    world = actors.world
    while quota.left:
        senders = actors.sample(quota, _BULK_SENDERS)
        for _ in range(_BULK_ROUNDS):
            for sender in senders:
                quota.send(Draft(bulk.subject, world.payloads.long(), sender=sender.subject))
            yield world.clock.now_us + 30 * SECOND_US
        yield world.clock.now_us + 10 * MINUTE_US
        leased = yield world.relay.lease(bulk.subject, limit=_BULK_FETCH_MAX)
        if leased:
            yield world.clock.now_us + 5 * SECOND_US
            yield world.relay.ack(bulk.subject, [envelope.id for envelope in leased])
        yield quota.due_us()


FLOOD = Model(_start_flood, group_size=1)
SLOW_CONSUMER = Model(_start_slow_consumer, group_size=1, one_in=50)
OVERFLOW = Model(_start_overflow, group_size=1)
