"""Agents: each has a mailbox, reads new messages after a while, and answers at its own pace."""

from collections.abc import Callable

from waypost.relay.relay import Consumer
from waypost.simulate.world import MINUTE_US, SECOND_US, Process, World
from waypost.wire.envelopes import Envelope

_TAKE_MAX = 50
_NOTICE_MAX_US = 12 * SECOND_US
_WORK_MAX_US = 8 * SECOND_US
_LATE = 0.02
"""How often an agent notices new messages only minutes later."""

OnMessage = Callable[[Envelope], object]


class Agent:
    """Consumes its mailbox like an agent connected to a served relay, except while away."""

    def __init__(self, world: World, subject: str) -> None:
        self.subject = subject
        self._world = world
        self._random = world.random(subject)
        self._on_message: OnMessage | None = None
        self._consumer: Consumer | None = None
        self._reading = False
        world.relay.register_endpoint(subject)
        world.at_the_end.append(self.disconnect)

    def subscribe(self, on_message: OnMessage) -> None:
        """Call `on_message` with each message before it is acknowledged."""
        self._on_message = on_message

    def connect(self) -> None:
        """Connect, and read the messages that arrived in the meantime."""
        if self._consumer is None:
            self._consumer = self._world.relay.attach(self.subject, self._schedule_reading)
            self._schedule_reading()

    def disconnect(self) -> None:
        """Go away: unacknowledged messages become pending again, new ones stay pending."""
        if self._consumer is not None:
            self._consumer.detach()
            self._consumer = None

    def _schedule_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._world.begin(self._read(), self._world.clock.now_us + self._notice_us())

    def _notice_us(self) -> int:
        draw = self._random.random
        if draw() < _LATE:
            return int(draw() * 10 * MINUTE_US)
        return int(draw() * draw() * _NOTICE_MAX_US)

    def _read(self) -> Process:
        """Take messages, work on them, answer and acknowledge, until the mailbox is empty."""
        while (consumer := self._consumer) is not None:
            deliveries = consumer.take(_TAKE_MAX)
            self._world.uncommitted += len(deliveries)
            if not deliveries:
                break
            draw = self._random.random
            yield self._world.clock.now_us + int(draw() * draw() * _WORK_MAX_US)
            if self._consumer is not consumer:
                continue  # it disconnected with the work half done
            if self._on_message is not None:
                for one in deliveries:
                    self._on_message(one.envelope)
            consumer.ack([one.envelope.id for one in deliveries])
            self._world.uncommitted += len(deliveries)
        self._reading = False


def create_agents(world: World, size: int) -> list[Agent]:
    """Create connected ordinary agents in teams of eight, each with a lead."""
    agents = []
    for number in range(size):
        team, member = divmod(number, 8)
        name = f"bot-{member}" if member else "lead"
        agent = Agent(world, f"agent.team-{team}.{name}")
        agent.connect()
        agents.append(agent)
    return agents
