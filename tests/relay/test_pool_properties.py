"""Pools under any sequence of calls: no message is at two workers, and none is lost."""

import random

from tests.faults.seeds import seeded
from tests.relay.conftest import Start
from tests.relay.observing import UNLIMITED
from waypost import CircuitBreakerConfig, RedeliveryConfig, Relay
from waypost.relay.delivery.consumer import Consumer, Delivery
from waypost.testing import ManualClock

RUNS = 8
STEPS = 300


class Crowd:
    """Workers, and readers over HTTP, of one mailbox; `holders` has who holds which message."""

    def __init__(self, relay: Relay, clock: ManualClock, chance: random.Random) -> None:
        self.relay = relay
        self.clock = clock
        self.chance = chance
        self.workers: list[Consumer] = []
        self.holders: dict[str, object] = {}
        self.published: set[str] = set()
        self.done: list[str] = []

    async def publish(self) -> None:
        count = self.chance.randrange(1, 8)
        drafts = [{"subject": "agent.a", "payload": 1, "sender": "agent.b"}] * count
        results = await self.relay.publish_many(drafts)
        assert all(one.delivered_to == 1 for one in results)
        self.published |= {one.message_id for one in results}

    async def join(self) -> None:
        if len(self.workers) < 4:
            room = self.chance.randrange(1, 5)
            worker = self.relay.attach("agent.a", lambda: self._fill(worker, room), shared=True)
            self.workers.append(worker)
            self._fill(worker, room)

    async def leave(self) -> None:
        if len(self.workers) > 1:
            worker = self.workers.pop(self.chance.randrange(len(self.workers)))
            self._return(self._held_by(worker))
            worker.detach()

    async def ack(self) -> None:
        if self.workers:
            worker = self.chance.choice(self.workers)
            held = self._held_by(worker)[:2]
            acked = [one.id for one in worker.ack(held)]
            assert acked == held
            self._return(held)
            self.done += held

    async def nack(self) -> None:
        if self.workers:
            worker = self.chance.choice(self.workers)
            ids = list(worker.in_flight)[:2]  # also those that are no longer its own
            returned = [one.id for one in worker.nack(ids, 0.0)]
            assert returned == [one for one in ids if self.holders.get(one) is worker]
            self._return(returned)

    async def take_back(self) -> None:
        """Return a message that any of them holds, as the owner of the mailbox may."""
        if self.holders:
            taken = self.chance.choice(sorted(self.holders))
            self._return([taken])
            assert await self.relay.nack("agent.a", taken) == 1

    async def lease(self) -> None:
        self._hold("http", [one.id for one in await self.relay.lease("agent.a", limit=2)])

    async def ack_leased(self) -> None:
        held = self._held_by("http")
        assert await self.relay.ack("agent.a", held) == len(held)
        self._return(held)
        self.done += held

    async def wait(self) -> None:
        self.clock.advance_ms(1)
        await self.relay.idle()

    def _fill(self, worker: Consumer, room: int) -> None:
        if self.chance.random() < 0.5:
            worker.prune()
        while len(worker.in_flight) < room:
            taken: list[Delivery] = worker.take(room - len(worker.in_flight))
            if not taken:
                return
            self._hold(worker, [one.envelope.id for one in taken])

    def _hold(self, holder: object, ids: list[str]) -> None:
        for one in ids:
            assert one not in self.holders, "a message is held twice"
            self.holders[one] = holder

    def _held_by(self, holder: object) -> list[str]:
        return [one for one, by in self.holders.items() if by is holder]

    def _return(self, ids: list[str]) -> None:
        for one in ids:
            del self.holders[one]


async def run(relay: Relay, clock: ManualClock, chance: random.Random) -> None:
    crowd = Crowd(relay, clock, chance)
    steps = [
        crowd.publish,
        crowd.join,
        crowd.leave,
        crowd.ack,
        crowd.nack,
        crowd.take_back,
        crowd.lease,
        crowd.ack_leased,
        crowd.wait,
    ]
    for _ in range(STEPS):
        await chance.choice(steps)()
    for _ in range(STEPS):
        for step in (crowd.wait, crowd.join, crowd.ack, crowd.lease, crowd.ack_leased):
            await step()
    assert sorted(crowd.done) == sorted(crowd.published)


async def test_each_message_is_held_once_and_done_once(start: Start, clock: ManualClock) -> None:
    endless = RedeliveryConfig(max_deliveries=0, first_delay_ms=1, max_delay_ms=1)
    closed = CircuitBreakerConfig(enabled=False)
    with seeded() as chance:
        for _ in range(RUNS):
            relay = await start(
                storage="journal", rate_limit=UNLIMITED, redelivery=endless, circuit_breaker=closed
            )
            relay.register_endpoint("agent.a")
            await run(relay, clock, chance)
