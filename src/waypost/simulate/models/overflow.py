"""Bulk mail to an agent that is slow to fetch it: the inbox runs out of bytes and evicts.

Several senders, each within its own quota, together hold more than the inbox may; whoever holds
most loses its oldest message.
"""

from waypost.relay.delivery.drafts import Draft
from waypost.simulate.agents import Agent
from waypost.simulate.models.model import Cast, Model
from waypost.simulate.world import MINUTE_US, SECOND_US, Portion, Process

_SENDERS = 6
_ROUNDS = 5
_FETCH_MAX = 200


def _act(cast: Cast, portion: Portion) -> None:
    for number, part in enumerate(portion.split(cast.groups)):
        bulk = Agent(cast.world, f"agent.bulk.store-{number}")
        cast.world.begin(_deliveries(cast, part, bulk), part.due_us())


def _deliveries(cast: Cast, portion: Portion, bulk: Agent) -> Process:
    world = cast.world
    while portion.left:
        senders = cast.some(portion, _SENDERS)
        for _ in range(_ROUNDS):
            for sender in senders:
                portion.send(Draft(bulk.subject, world.payloads.long(), sender.subject))
            yield world.clock.now_us + 30 * SECOND_US
        yield world.clock.now_us + 10 * MINUTE_US
        taken = yield world.relay.lease(bulk.subject, limit=_FETCH_MAX)
        if taken:
            yield world.clock.now_us + 5 * SECOND_US
            yield world.relay.ack(bulk.subject, [envelope.id for envelope in taken])
        yield portion.due_us()


OVERFLOW = Model(_act, group_size=1)
