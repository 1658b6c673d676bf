"""An agent whose handler raises for a while: failures, an open breaker, probes, recovery.

An episode, with the served relay's breaker (5 failures open it, 30 s until a probe, 2 good probes
close it): mail fails, mail is refused, a probe fails, the agent is mended, probes succeed.
"""

from waypost.relay.delivery.drafts import Draft
from waypost.simulate.models.model import Cast, Model
from waypost.simulate.world import SECOND_US, Portion, Process
from waypost.wire.envelopes import Envelope

_FAILING, _REJECTED, _HEALTHY = 7, 4, 12
_COOLDOWN_US = 31 * SECOND_US


class _Shaky:
    """An endpoint with a handler in the relay's own process."""

    def __init__(self, cast: Cast, subject: str) -> None:
        self.subject = subject
        self.sick = False
        cast.world.relay.register_endpoint(subject)
        cast.world.relay.subscribe(subject, self._handle)

    def _handle(self, envelope: Envelope) -> None:
        if self.sick:
            raise ConnectionError("the database behind this agent is away")


def _act(cast: Cast, portion: Portion) -> None:
    for number, part in enumerate(portion.split(cast.groups)):
        shaky = _Shaky(cast, f"agent.shaky.ledger-{number}")
        cast.world.begin(_episodes(cast, part, shaky), part.due_us())


def _episodes(cast: Cast, portion: Portion, shaky: _Shaky) -> Process:
    world = cast.world

    def write(count: int) -> None:
        sender = cast.anyone(portion).subject
        for _ in range(count):
            portion.send(Draft(shaky.subject, world.payloads.any(), sender))

    while portion.left:
        shaky.sick = True
        write(_FAILING)
        yield world.relay.idle()
        yield world.clock.now_us + 2 * SECOND_US
        write(_REJECTED)
        yield world.clock.now_us + _COOLDOWN_US
        write(1)
        yield world.relay.idle()
        shaky.sick = False
        yield world.clock.now_us + _COOLDOWN_US
        for _ in range(2):
            write(1)
            yield world.relay.idle()
        for _ in range(_HEALTHY // 4):
            write(4)
            yield world.clock.now_us + int(portion.random.random() * 60 * SECOND_US)
        yield portion.due_us()


CRASHES = Model(_act, group_size=1)
