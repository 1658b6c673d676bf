"""Ordinary traffic: agents that ask and answer, and broadcasts to patterns.

An answer is published with `parent=`, so it inherits the question's budget. Agents mostly write
to a few friends, so that pairs reach higher tiers; sometimes they write to a stranger. Broadcasts
go mostly to one team, sometimes to the leads of all teams.
"""

from waypost.relay.relay import Draft
from waypost.simulate.agents import Agent
from waypost.simulate.models.model import Actors, Model
from waypost.simulate.world import Process, Quota
from waypost.wire.envelopes import Envelope

_FRIENDS = 6
_STRANGER = 0.04
_QUESTIONS_MAX = 4
_LEADS = 0.05


def _start_conversations(actors: Actors, quota: Quota) -> None:
    payload = actors.world.payloads.any

    def answer_as(agent: Agent) -> None:
        me = agent.subject

        def answer(question: Envelope) -> None:
            if question.reply_to is not None:
                quota.send(Draft(question.reply_to, payload(), sender=me, parent=question))

        agent.subscribe(answer)

    for agent in actors.agents:
        answer_as(agent)
    actors.world.begin(_ask(actors, quota), quota.due_us())


def _ask(actors: Actors, quota: Quota) -> Process:
    agents, draw, payload = actors.agents, quota.random.random, actors.world.payloads.any
    size = len(agents)
    while quota.left:
        index = int(draw() ** 2 * size)  # some are chattier than others
        stranger = draw() < _STRANGER
        distance = 1 + int(draw() * (size - 1 if stranger else min(_FRIENDS, size - 1)))
        me, you = agents[index].subject, agents[(index + distance) % size].subject
        for _ in range(1 + int(draw() * _QUESTIONS_MAX)):
            quota.send(Draft(you, payload(), sender=me, reply_to=me))
        yield quota.due_us()


def _start_broadcasts(actors: Actors, quota: Quota) -> None:
    for number, part in enumerate(quota.split(actors.groups)):
        announcer = Agent(actors.world, f"agent.news.desk-{number}")
        announcer.connect()
        actors.world.begin(_announce(actors, part, announcer), part.due_us())


def _announce(actors: Actors, quota: Quota, announcer: Agent) -> Process:
    teams = sorted({agent.subject.split(".")[1] for agent in actors.agents})
    while quota.left:
        leads = quota.random.random() < _LEADS
        pattern = "agent.*.lead" if leads else f"agent.{quota.random.choice(teams)}.>"
        quota.send(Draft(pattern, actors.world.payloads.any(), sender=announcer.subject))
        yield quota.due_us()


CONVERSATIONS = Model(_start_conversations)
BROADCASTS = Model(_start_broadcasts, group_size=1)
