"""An agent gone wild: bursts far over its rate limit, all to one other agent."""

from waypost.relay.delivery.drafts import Draft
from waypost.simulate.agents import Agent
from waypost.simulate.models.model import Cast, Model
from waypost.simulate.world import SECOND_US, Portion, Process

_BURST_MIN, _BURST_MAX = 150, 4_000
_AT_ONCE = 200


def _act(cast: Cast, portion: Portion) -> None:
    for number, part in enumerate(portion.split(cast.groups)):
        flooder = Agent(cast.world, f"agent.wild.flooder-{number}")
        flooder.arrive()
        cast.world.begin(_flood(cast, part, flooder), part.due_us())


def _flood(cast: Cast, portion: Portion, flooder: Agent) -> Process:
    burst = max(_BURST_MIN, min(portion.total // 8, _BURST_MAX))
    while portion.left:
        victim, left = cast.anyone(portion), burst
        while left > 0 and portion.left:
            for _ in range(min(_AT_ONCE, left)):
                portion.send(Draft(victim.subject, cast.world.payloads.any(), flooder.subject))
            left -= _AT_ONCE
            yield cast.world.clock.now_us + SECOND_US
        yield portion.due_us()


FLOOD = Model(_act, group_size=1)
