"""News for many: publishes to a pattern, mostly to one team, sometimes to the leads of all."""

from waypost.relay.delivery.drafts import Draft
from waypost.simulate.agents import Agent
from waypost.simulate.models.model import Cast, Model
from waypost.simulate.world import Portion, Process

_LEADS = 0.05


def _act(cast: Cast, portion: Portion) -> None:
    for number, part in enumerate(portion.split(cast.groups)):
        desk = Agent(cast.world, f"agent.news.desk-{number}")
        desk.arrive()
        cast.world.begin(_announce(cast, part, desk), part.due_us())


def _announce(cast: Cast, portion: Portion, desk: Agent) -> Process:
    teams = sorted({agent.subject.split(".")[1] for agent in cast.crowd})
    while portion.left:
        leads = portion.random.random() < _LEADS
        pattern = "agent.*.lead" if leads else f"agent.{portion.random.choice(teams)}.>"
        portion.send(Draft(pattern, cast.world.payloads.any(), desk.subject))
        yield portion.due_us()


BROADCASTS = Model(_act, group_size=1)
