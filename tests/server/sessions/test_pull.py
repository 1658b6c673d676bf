"""Agents with pull delivery: messages come only in response to a fetch."""

import asyncio

import pytest

from tests.server.sessions.memory_server import (
    ConnectedAgent,
    MemoryServer,
    ServerLauncher,
    kinds,
    numbers,
)
from waypost import BackpressureConfig, QosConfig
from waypost.server.sessions.deliveries import DeliveryLimits
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL


async def pull(server: MemoryServer, **more: object) -> ConnectedAgent:
    agent = server.connect(receive="pull", **more)
    await agent.read()
    return agent


async def fetch(agent: ConnectedAgent, **asked: object) -> list[frames.Message]:
    agent.send_frame(frames.Fetch(ref=1, **asked))
    (answer,) = await agent.read()
    assert isinstance(answer, frames.FetchedMessages)
    assert answer.ref == 1
    return answer.messages


async def test_a_pulling_agent_gets_the_count_and_no_messages(server: MemoryServer) -> None:
    server.store(3)
    await server.wait_until_idle()
    agent = server.connect(receive="pull")
    assert await agent.read() == [frames.QueueStatus(pending=3)]
    server.store(1, first=3)
    assert await agent.read() == []


async def test_a_fetch_returns_up_to_its_limit(server: MemoryServer) -> None:
    server.store(5)
    await server.wait_until_idle()
    agent = await pull(server)
    assert numbers(await fetch(agent, limit=2)) == [0, 1]
    assert numbers(await fetch(agent, limit=2)) == [2, 3]
    assert numbers(await fetch(agent)) == [4]


async def test_fetched_messages_count_as_stored_and_leave_when_confirmed(
    server: MemoryServer,
) -> None:
    sender = server.connect("agent.b")
    await sender.send("agent.a", 1)
    agent = await pull(server)
    (message,) = await fetch(agent)
    assert message.was_stored
    agent.ack([message])
    (received,) = await sender.read()
    assert isinstance(received, frames.DeliveryConfirm)
    assert received.was_stored
    agent.disconnect()
    assert await server.connect().read() == [
        frames.QueueStatus(pending=0),
        frames.Live(),
    ]


async def test_messages_over_the_size_limit_stay_in_order(server: MemoryServer) -> None:
    sizes = [10, 20_000, 20, 30_000, 30]
    for number, size in enumerate(sizes):
        server.publish([number, "x" * size])
    await server.wait_until_idle()
    agent = await pull(server)
    small = await fetch(agent, max_size_bytes=8192)
    assert [number for number, _ in numbers(small)] == [0, 2, 4]
    assert await fetch(agent, max_size_bytes=8192) == []
    agent.ack(small)
    assert [number for number, _ in numbers(await fetch(agent))] == [1, 3]


async def test_a_fetch_may_wait_for_the_first_message(server: MemoryServer) -> None:
    agent = await pull(server)
    agent.send_frame(frames.Fetch(ref=7, wait=60.0))
    assert await agent.read() == []
    server.store(2)
    (answer,) = await agent.read()
    assert isinstance(answer, frames.FetchedMessages)
    assert (answer.ref, numbers(answer.messages)) == (7, [0, 1])


async def test_a_fetch_that_times_out_is_empty(server: MemoryServer) -> None:
    agent = await pull(server)
    agent.send_frame(frames.Fetch(ref=7, wait=0.01))
    answer = await asyncio.wait_for(agent.session.outbox.take(1, 1), 60)
    assert answer == [frames.FetchedMessages(ref=7, messages=[])]


async def test_only_one_fetch_is_allowed_at_a_time(server: MemoryServer) -> None:
    agent = await pull(server)
    agent.send_frame(frames.Fetch(ref=1, wait=60.0), frames.Fetch(ref=2))
    (answer,) = await agent.read()
    assert isinstance(answer, frames.Error)
    assert answer.ref == 2
    server.store(1)
    assert kinds(await agent.read()) == ["FetchedMessages"]


async def test_an_agent_with_push_delivery_cannot_fetch(server: MemoryServer) -> None:
    agent = server.connect()
    await agent.read()
    agent.send_frame(frames.Fetch(ref=1))
    (answer,) = await agent.read()
    assert isinstance(answer, frames.Error)
    assert answer.ref == 1


async def test_at_most_a_thousand_messages_are_unconfirmed(launcher: ServerLauncher) -> None:
    server = await launcher.open(
        qos=QosConfig(enabled=False), backpressure=BackpressureConfig(enabled=False)
    )
    server.store(1000)
    await server.wait_until_idle()
    agent = await pull(server)
    held = [one for _ in range(4) for one in await fetch(agent, limit=250)]
    agent.ack(held[:1])
    server.store(5, first=1000)
    await server.wait_until_idle()
    assert numbers(await fetch(agent, limit=50)) == [1000]


async def test_a_fetch_at_the_bound_waits_for_a_confirmation(server: MemoryServer) -> None:
    for number in range(30):
        server.publish([number, "x" * 200_000], sender=f"agent.sender-{number}")
    await server.wait_until_idle()
    agent = await pull(server)
    held: list[frames.Message] = []
    while batch := await fetch(agent):
        held += batch
    assert len(held) == 21
    agent.send_frame(frames.Fetch(ref=2, wait=60.0))
    assert await agent.read() == []
    agent.ack(held)
    assert kinds(await agent.read()) == ["FetchedMessages"]


async def test_one_response_fits_into_a_frame(server: MemoryServer) -> None:
    for number in range(6):
        server.publish([number, "x" * 40_000])
    await server.wait_until_idle()
    agent = await pull(server, limits=DeliveryLimits(50, 256, answer_max_bytes=100_000))
    assert [len(await fetch(agent)) for _ in range(3)] == [3, 3, 0]


async def test_a_disconnect_during_a_fetch_leaves_nothing_behind(server: MemoryServer) -> None:
    agent = await pull(server)
    agent.send_frame(frames.Fetch(ref=1, wait=60.0))
    agent.disconnect()
    server.store(1)
    assert numbers(await server.connect().read()) == [0]


async def test_stored_receipts_are_delivered_beside_the_messages(server: MemoryServer) -> None:
    server.connect("agent.b").disconnect()
    server.publish(1)
    recipient = server.connect()
    recipient.ack(await recipient.read_messages())
    await server.wait_until_idle()
    agent = server.connect("agent.b", receive="pull")
    await agent.read()
    agent.send_frame(frames.Fetch(ref=1))
    assert kinds(await agent.read()) == ["DeliveryConfirm", "FetchedMessages"]


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
async def test_the_tiers_of_senders_are_returned_on_request(
    server: MemoryServer, protocol: str
) -> None:
    server.connect("agent.known").disconnect()
    agent = await pull(server, protocol=protocol)
    await agent.send("agent.known", "hello")
    server.publish(1, sender="agent.known")
    server.publish(2, sender="agent.stranger")
    await server.wait_until_idle()
    assert [one.tier for one in await fetch(agent, tiers=True)] == [3, 1]
    server.publish(3, sender="agent.known")
    await server.wait_until_idle()
    assert [one.tier for one in await fetch(agent)] == [0]


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
async def test_payloads_are_the_same_in_every_encoding(server: MemoryServer, protocol: str) -> None:
    server.publish({"a": [1, "ü"]})
    await server.wait_until_idle()
    assert numbers(await fetch(await pull(server, protocol=protocol))) == [{"a": [1, "ü"]}]
