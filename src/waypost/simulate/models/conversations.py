"""Pairs of agents that ask and answer, each in its own time.

An answer is published with `parent=`, so it inherits the question's budget. Agents mostly write
to a few friends, so that pairs get to know each other; sometimes they write to a stranger.
"""

from waypost.relay.delivery.drafts import Draft
from waypost.simulate.agents import Agent
from waypost.simulate.models.model import Cast, Model
from waypost.simulate.world import Portion, Process
from waypost.wire.envelopes import Envelope

_FRIENDS = 6
_STRANGER = 0.04
_QUESTIONS_MAX = 4


def _act(cast: Cast, portion: Portion) -> None:
    payload = cast.world.payloads.any

    def answer_as(agent: Agent) -> None:
        me = agent.subject

        def answer(question: Envelope) -> None:
            if question.reply_to is not None:
                portion.send(Draft(question.reply_to, payload(), me, None, None, question))

        agent.on_mail = answer

    for agent in cast.crowd:
        answer_as(agent)
    cast.world.begin(_ask(cast, portion), portion.due_us())


def _ask(cast: Cast, portion: Portion) -> Process:
    crowd, draw, payload = cast.crowd, portion.random.random, cast.world.payloads.any
    size = len(crowd)
    while portion.left:
        place = int(draw() ** 2 * size)  # some are chattier than others
        stranger = draw() < _STRANGER
        away = 1 + int(draw() * (size - 1 if stranger else min(_FRIENDS, size - 1)))
        me, you = crowd[place].subject, crowd[(place + away) % size].subject
        for _ in range(1 + int(draw() * _QUESTIONS_MAX)):
            portion.send(Draft(you, payload(), me, me))
        yield portion.due_us()


CONVERSATIONS = Model(_act)
