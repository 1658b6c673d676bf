"""Agents that pass on whatever they get, in a ring, until the budget stops it.

In a small ring a message would come back to one that had it (cycle detected); in a large one it
first runs out of hops. Now and then one starts with a small budget and runs out of calls.
"""

from waypost.relay.delivery.drafts import Draft
from waypost.simulate.agents import Agent, OnMail
from waypost.simulate.models.model import Cast, Model
from waypost.simulate.world import Portion, Process
from waypost.wire.envelopes import Envelope

_SMALL, _LARGE = 3, 6
_FEW_CALLS = 0.15


def _act(cast: Cast, portion: Portion) -> None:
    rings = [
        _ring(cast, portion, f"agent.ring-{number}-{size}", size)
        for number in range(cast.groups)
        for size in (_SMALL, _LARGE)
    ]
    cast.world.begin(_start(cast, portion, rings), portion.due_us())


def _ring(cast: Cast, portion: Portion, prefix: str, size: int) -> list[Agent]:
    ring = [Agent(cast.world, f"{prefix}.node-{place}") for place in range(size)]
    for place, agent in enumerate(ring):
        agent.on_mail = _passing_on(portion, agent, ring[(place + 1) % size])
        agent.arrive()
    return ring


def _passing_on(portion: Portion, agent: Agent, following: Agent) -> OnMail:
    def pass_on(envelope: Envelope) -> None:
        portion.send(
            Draft(following.subject, envelope.payload, agent.subject, None, None, envelope)
        )

    return pass_on


def _start(cast: Cast, portion: Portion, rings: list[list[Agent]]) -> Process:
    random = portion.random
    while portion.left:
        ring = random.choice(rings)
        budget = {"call_budget_remaining": 2} if random.random() < _FEW_CALLS else None
        sender = cast.anyone(portion).subject
        portion.send(Draft(ring[0].subject, cast.world.payloads.any(), sender, None, budget))
        yield portion.due_us()


LOOPS = Model(_act, group_size=_SMALL + _LARGE)
