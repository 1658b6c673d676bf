"""A consumer that cannot keep up: its mailbox fills until senders, then everyone, are refused.

It asks for its mail now and then, takes a few messages on a lease, and now and then works longer
than the lease lasts, so that they come back. Every few hours it takes all there is.
"""

from waypost.relay.delivery.drafts import Draft
from waypost.simulate.agents import Agent
from waypost.simulate.models.model import Cast, Model
from waypost.simulate.world import MINUTE_US, SECOND_US, Portion, Process

_SENDERS = 12
_EACH_MIN, _EACH_MAX = 18, 26
_TAKES = (3, 5, 5, 10, 10, 10, 150)
_PAUSE_US = (20 * MINUTE_US, 40 * MINUTE_US)
_WORK_MAX_US, _TOO_LONG_US = 25 * SECOND_US, 35 * SECOND_US
"""A lease lasts 30 s."""

_TOO_LONG_EVERY = 4
"""From the first time on, so that it happens however few messages there are."""

_GIVE_BACK = 0.1


def _act(cast: Cast, portion: Portion) -> None:
    parts = portion.split(cast.groups)
    for number, part in enumerate(parts):
        slow = Agent(cast.world, f"agent.slow.archive-{number}")
        cast.world.begin(_fill(cast, part, slow), part.due_us())
        cast.world.begin(_trickle(cast, part, slow), cast.world.start_us)


def _fill(cast: Cast, portion: Portion, slow: Agent) -> Process:
    while portion.left:
        for sender in cast.some(portion, _SENDERS):
            for _ in range(portion.random.randint(_EACH_MIN, _EACH_MAX)):
                portion.send(Draft(slow.subject, cast.world.payloads.any(), sender.subject))
            yield cast.world.clock.now_us + int(portion.random.random() * 20 * SECOND_US)
        yield portion.due_us()


def _trickle(cast: Cast, portion: Portion, slow: Agent) -> Process:
    world, random = cast.world, portion.random
    times = 0
    while (at_us := world.clock.now_us + random.randint(*_PAUSE_US)) < world.end_us:
        yield at_us
        taken = yield world.relay.lease(slow.subject, limit=random.choice(_TAKES))
        if not taken:
            continue
        too_long = times % _TOO_LONG_EVERY == 0
        times += 1
        work_us = _TOO_LONG_US if too_long else int(random.random() * _WORK_MAX_US)
        yield world.clock.now_us + work_us
        ids = [envelope.id for envelope in taken]
        if random.random() < _GIVE_BACK:
            yield world.relay.nack(slow.subject, ids, delay=60.0)
        else:
            yield world.relay.ack(slow.subject, ids)


SLOW_CONSUMER = Model(_act, group_size=1, one_in=50)
