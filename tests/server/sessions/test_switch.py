"""The switch from stored to live delivery: nothing is lost or out of order."""

import asyncio
import random

from tests.faults.seeds import seeded
from tests.server.sessions.memory_server import (
    ConnectedAgent,
    MemoryServer,
    ServerLauncher,
    kinds,
    numbers,
)
from waypost import QosConfig
from waypost.wire import frames

STORED = 3
ROUNDS = 1000


async def step(chance: random.Random) -> None:
    """Yield to the event loop a few times, or not at all."""
    for _ in range(chance.randrange(4)):
        await asyncio.sleep(0)


async def take(agent: ConnectedAgent, chance: random.Random) -> list[frames.FromRelay]:
    """Read the outbox now and acknowledge its messages at once or later."""
    found: list[frames.FromRelay] = []
    while len(agent.session.outbox):
        found += await agent.session.outbox.take(chance.randrange(1, 5), 1 << 30)
        await step(chance)
    got = [one for one in found if isinstance(one, frames.Message)]
    if got:
        agent.ack(got)
    return found


async def one_switch(server: MemoryServer, chance: random.Random, subject: str) -> None:
    """Store messages, and send one at any moment around the switch."""
    server.store(STORED, to=subject)
    if chance.random() < 0.5:
        await server.wait_until_idle()
    moment = chance.randrange(12)
    found: list[frames.FromRelay] = []
    agent = server.connect(subject)
    for at in range(12):
        if at == moment:
            server.publish(STORED, to=subject)
        await step(chance)
        found += await take(agent, chance)
    while len(numbers(found)) <= STORED:
        await server.wait_until_idle()
        assert len(agent.session.outbox), f"stranded: {numbers(found)}"
        found += await take(agent, chance)
    await server.wait_until_idle()
    found += await take(agent, chance)
    assert numbers(found) == list(range(STORED + 1))
    assert kinds(found)[0] == "QueueStatus"
    assert kinds(found).count("Live") == 1
    agent.disconnect()


async def test_a_message_sent_at_any_moment_around_the_switch_is_delivered(
    server: MemoryServer,
) -> None:
    with seeded() as chance:
        for number in range(ROUNDS):
            await one_switch(server, chance, f"agent.a{number % 10}")
    await server.wait_until_idle()
    assert server.relay.metrics().total_messages == 0


async def test_two_agents_that_reply_through_reconnects_lose_nothing(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open(qos=QosConfig(enabled=False))
    with seeded() as chance:
        sent: list[int] = []
        got: list[int] = []
        agent, other = server.connect(), server.connect("agent.b")
        for number in range(300):
            other.put("agent.a", number)
            sent.append(number)
            await step(chance)
            if chance.random() < 0.15:
                agent.disconnect()
                await step(chance)
                agent = server.connect()
            batch = [one for one in await take(agent, chance) if isinstance(one, frames.Message)]
            got += numbers(batch)
        while batch := await agent.read_messages():
            got += numbers(batch)
            agent.ack(batch)
    assert list(dict.fromkeys(got)) == sent
