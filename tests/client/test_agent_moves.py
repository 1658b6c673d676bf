"""Agents of a relay with several nodes follow it from one to another."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.client.fake_relay import FakeConnection, run_fake_relay
from waypost.client import ClientOptions, Identity, connect
from waypost.client.errors import CannotConnect
from waypost.wire import frames

ANN = Identity.new("agent.ann")


async def accept(connection: FakeConnection) -> None:
    await connection.accept()
    await connection.stay_open()


async def send_away(connection: FakeConnection, url: str) -> None:
    await connection.send_frame(
        frames.Error(error="not here", reason=frames.MOVED, url=url, fatal=True)
    )
    await connection.websocket.close(frames.CLOSE_MOVED, "moved")


async def reached(nodes: AsyncExitStack, seen: list[str], name: str) -> str:
    """Start a node that welcomes agents and notes its name in `seen`."""

    async def note(connection: FakeConnection) -> None:
        seen.append(name)
        await accept(connection)

    return await nodes.enter_async_context(run_fake_relay(note))


async def test_an_agent_follows_to_the_node_that_serves_it() -> None:
    seen: list[str] = []
    async with AsyncExitStack() as nodes:
        owner = await reached(nodes, seen, "owner")
        other = await nodes.enter_async_context(run_fake_relay(lambda one: send_away(one, owner)))
        async with connect(other, ANN) as agent:
            assert agent.is_connected
    assert seen == ["owner"]


async def test_sends_of_an_agent_that_is_moved_are_written_again_at_the_new_node() -> None:
    sent: list[str] = []

    async with AsyncExitStack() as nodes:

        async def take(connection: FakeConnection) -> None:
            await connection.accept()
            [send] = await connection.receive_frame()
            assert isinstance(send, frames.Send)
            sent.append(send.message_id or "")
            await connection.send_frame(
                frames.SendResult(ref=send.ref, message_id=send.message_id or "", delivered_to=1)
            )
            await connection.stay_open()

        new = await nodes.enter_async_context(run_fake_relay(take))

        async def take_and_move(connection: FakeConnection) -> None:
            await connection.accept()
            [send] = await connection.receive_frame()
            assert isinstance(send, frames.Send)
            sent.append(send.message_id or "")
            await send_away(connection, new)

        old = await nodes.enter_async_context(run_fake_relay(take_and_move))
        async with connect(old, ANN) as agent:
            result = await agent.send("agent.bob", {"n": 1})
    assert sent == [result.message_id, result.message_id]


async def test_the_next_node_is_asked_when_one_is_gone() -> None:
    seen: list[str] = []
    async with AsyncExitStack() as nodes:
        async with run_fake_relay(accept) as gone:
            pass
        alive = await reached(nodes, seen, "alive")
        async with connect(f"{gone},{alive}", ANN) as agent:
            assert agent.is_connected
    assert seen == ["alive"]


async def test_an_agent_waits_while_no_node_serves_it() -> None:
    async def not_yet(connection: FakeConnection) -> None:
        if connection.number < 3:
            await send_away(connection, "")
        else:
            await accept(connection)

    async with run_fake_relay(not_yet) as url, connect(url, ANN) as agent:
        assert agent.is_connected


async def test_a_relay_cannot_send_an_agent_into_other_networks() -> None:
    async def hostile(connection: FakeConnection) -> None:
        await send_away(connection, "http://169.254.169.254/")

    async with run_fake_relay(hostile) as url:
        with pytest.raises(CannotConnect, match=r"169\.254\.169\.254.* was not given"):
            async with connect(url, ANN):
                pass


async def test_nodes_that_send_an_agent_to_each_other_do_not_keep_it_busy() -> None:
    connections = 0

    async def pointing_at_itself(connection: FakeConnection) -> None:
        nonlocal connections
        connections += 1
        await send_away(connection, own[0])

    own: list[str] = []
    async with run_fake_relay(pointing_at_itself) as url:
        own.append(url)
        with pytest.raises(CannotConnect):
            async with (
                asyncio.timeout(60),
                connect(url, ANN, options=ClientOptions(connect_timeout_s=1.5)),
            ):
                pass
    assert connections <= 20
