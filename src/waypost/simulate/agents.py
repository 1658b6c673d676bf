"""Agents: each has a mailbox, reads it when something arrives, and answers in its own time."""

from collections.abc import Callable

from waypost.relay.delivery.consumers import Consumer
from waypost.simulate.world import MINUTE_US, SECOND_US, Process, World
from waypost.wire.envelopes import Envelope

_TAKE_MAX = 50
_NOTICE_MAX_US = 12 * SECOND_US
_WORK_MAX_US = 8 * SECOND_US
_ABSENT_MINDED = 0.02
"""How often an agent looks at its mail only minutes later."""

OnMail = Callable[[Envelope], object]


class Agent:
    """Stays at its mailbox, like an agent connected to a served relay, except while away."""

    def __init__(self, world: World, subject: str, on_mail: OnMail | None = None) -> None:
        self.subject = subject
        self.on_mail = on_mail
        self._world = world
        self._random = world.random(subject)
        self._consumer: Consumer | None = None
        self._reading = False
        world.relay.register_endpoint(subject)
        world.at_the_end.append(self.leave)

    def arrive(self) -> None:
        """Connect, and read what has come in the meantime."""
        if self._consumer is None:
            self._consumer = self._world.relay.join(self.subject, self._mail_arrived)
            self._mail_arrived()

    def leave(self) -> None:
        """Go away: what was not answered waits again, and so does what comes from now on."""
        if self._consumer is not None:
            self._consumer.leave()
            self._consumer = None

    def _mail_arrived(self) -> None:
        if not self._reading:
            self._reading = True
            self._world.begin(self._read(), self._world.clock.now_us + self._notice_us())

    def _notice_us(self) -> int:
        draw = self._random.random
        if draw() < _ABSENT_MINDED:
            return int(draw() * 10 * MINUTE_US)
        return int(draw() * draw() * _NOTICE_MAX_US)

    def _read(self) -> Process:
        """Take mail, work on it, answer and confirm; until there is no more."""
        while (consumer := self._consumer) is not None:
            handed = consumer.take(_TAKE_MAX)
            self._world.unsettled += len(handed)
            if not handed:
                break
            draw = self._random.random
            yield self._world.clock.now_us + int(draw() * draw() * _WORK_MAX_US)
            if self._consumer is not consumer:
                continue  # it went away with the work half done
            if self.on_mail is not None:
                for one in handed:
                    self.on_mail(one.envelope)
            consumer.ack([one.envelope.id for one in handed])
            self._world.unsettled += len(handed)
        self._reading = False


def hire_crowd(world: World, size: int) -> list[Agent]:
    """Ordinary agents in teams of eight, each with a lead; all are there."""
    made = []
    for number in range(size):
        team, place = divmod(number, 8)
        name = f"bot-{place}" if place else "lead"
        agent = Agent(world, f"agent.team-{team}.{name}")
        agent.arrive()
        made.append(agent)
    return made
