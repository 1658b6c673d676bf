"""From stored to live: whatever is sent around the switch is neither lost nor out of order."""

import asyncio
import random

from tests.faults.seeds import seeded
from tests.server.sessions.sessions_harness import House, Room, Seat, kinds, numbers
from waypost import QosConfig
from waypost.wire import frames

STORED = 3
ROUNDS = 1000


async def step(chance: random.Random) -> None:
    """Let others have a few turns, or none."""
    for _ in range(chance.randrange(4)):
        await asyncio.sleep(0)


async def take(seat: Seat, chance: random.Random) -> list[frames.FromRelay]:
    """What is in the outbox this very moment, confirmed sooner or later."""
    found: list[frames.FromRelay] = []
    while len(seat.session.outbox):
        found += await seat.session.outbox.take(chance.randrange(1, 5), 1 << 30)
        await step(chance)
    got = [one for one in found if isinstance(one, frames.Message)]
    if got:
        seat.ack(got)
    return found


async def one_switch(room: Room, chance: random.Random, subject: str) -> None:
    """Some stored messages, and one that is sent at any moment around the switch."""
    room.store(STORED, to=subject)
    if chance.random() < 0.5:
        await room.quiet()
    moment = chance.randrange(12)
    found: list[frames.FromRelay] = []
    seat = room.sit(subject)
    for at in range(12):
        if at == moment:
            room.publish(STORED, to=subject)
        await step(chance)
        found += await take(seat, chance)
    while len(numbers(found)) <= STORED:
        await room.quiet()
        assert len(seat.session.outbox), f"stranded: {numbers(found)}"
        found += await take(seat, chance)
    await room.quiet()
    found += await take(seat, chance)
    assert numbers(found) == list(range(STORED + 1))
    assert kinds(found)[0] == "QueueStatus"
    assert kinds(found).count("Live") == 1
    seat.leave()


async def test_a_message_sent_at_any_moment_around_the_switch_is_not_stranded(room: Room) -> None:
    with seeded() as chance:
        for number in range(ROUNDS):
            await one_switch(room, chance, f"agent.a{number % 10}")
    await room.quiet()
    assert room.relay.metrics().total_messages == 0


async def test_two_agents_that_answer_each_other_through_reconnects_lose_nothing(
    house: House,
) -> None:
    room = await house.open(qos=QosConfig(enabled=False))
    with seeded() as chance:
        sent: list[int] = []
        got: list[int] = []
        seat, other = room.sit(), room.sit("agent.b")
        for number in range(300):
            other.put("agent.a", number)
            sent.append(number)
            await step(chance)
            if chance.random() < 0.15:
                seat.leave()
                await step(chance)
                seat = room.sit()
            batch = [one for one in await take(seat, chance) if isinstance(one, frames.Message)]
            got += numbers(batch)
        while batch := await seat.read_messages():
            got += numbers(batch)
            seat.ack(batch)
    assert list(dict.fromkeys(got)) == sent
