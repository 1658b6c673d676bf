"""The asyncio client over connections that break, through a proxy that cuts them."""

import asyncio
import gc

import pytest

from tests.client.conftest import Dial
from tests.client.tcp_proxy import TcpProxy
from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay
from waypost.client import Agent, SendTimedOut


async def test_sends_are_stored_once_however_often_the_connection_is_cut(
    relay: ListeningRelay, proxy: TcpProxy, dial: Dial
) -> None:
    async with dial("agent.ann", proxy.url) as ann:
        sending = asyncio.create_task(
            ann.send_many({"subject": "agent.bob", "payload": number} for number in range(400))
        )
        while not sending.done() and proxy.connections < 6:
            carried = proxy.carried
            await eventually(lambda carried=carried: proxy.carried > carried or sending.done())
            proxy.cut()
            await eventually(lambda: ann.is_connected or sending.done())
        results = await sending
        assert [one.delivered_to for one in results] == [1] * 400
    assert proxy.connections > 1
    async with dial("agent.bob") as bob:
        got = []
        for _ in range(400):
            async with await bob.receive(60) as message:
                got.append(message.payload)
        assert got == list(range(400))
    await eventually(lambda: relay.waiting("agent.bob") == 0)


async def test_messages_reach_the_application_once_however_often_the_connection_is_cut(
    ann: Agent, relay: ListeningRelay, proxy: TcpProxy, dial: Dial
) -> None:
    await ann.send_many({"subject": "agent.bob", "payload": number} for number in range(200))
    got = []
    async with dial("agent.bob", proxy.url) as bob:
        for count in range(200):
            async with await bob.receive(60) as message:
                got.append(message.payload)
            if count % 40 == 20:
                proxy.cut()
        assert got == list(range(200))
        await eventually(lambda: relay.waiting("agent.bob") == 0)
    assert proxy.connections > 1


async def test_confirmations_arrive_once_however_often_the_connection_is_cut(
    bob: Agent, proxy: TcpProxy, dial: Dial
) -> None:
    async with dial("agent.ann", proxy.url) as ann:
        confirmations = ann.confirmations()
        sent = []
        for count in range(100):
            sent.append((await ann.send("agent.bob", count)).message_id)
            await (await bob.receive(60)).ack()
            if count % 20 == 5:  # five times: each delay before the next attempt is twice as long
                proxy.cut()
        got = [(await anext(confirmations)).message_id for _ in sent]
        assert sorted(got) == sorted(sent)
    assert proxy.connections > 1


async def test_a_held_message_is_not_delivered_twice_and_can_be_acked_after_a_reconnect(
    ann: Agent, relay: ListeningRelay, proxy: TcpProxy, dial: Dial
) -> None:
    async with dial("agent.bob", proxy.url) as bob:
        await ann.send("agent.bob", "precious")
        held = await bob.receive(60)
        proxy.cut()
        await eventually(lambda: proxy.connections == 2 and bob.is_connected)
        await ann.send("agent.bob", "next")
        await held.ack()
        assert (await bob.receive(60)).payload == "next"
        await eventually(lambda: relay.waiting("agent.bob") == 1)


async def test_a_released_message_is_delivered_again_after_a_reconnect(
    ann: Agent, proxy: TcpProxy, dial: Dial
) -> None:
    async with dial("agent.bob", proxy.url) as bob:
        sent = await ann.send("agent.bob", "forgotten")
        assert (await bob.receive(60)).id == sent.message_id  # released at once
        gc.collect()
        proxy.cut()
        assert (await bob.receive(60)).id == sent.message_id


async def test_a_send_made_while_disconnected_waits_for_the_connection(
    proxy: TcpProxy, dial: Dial, bob: Agent
) -> None:
    async with dial("agent.ann", proxy.url) as ann:
        proxy.is_closed = True
        proxy.cut()
        await eventually(lambda: not ann.is_connected)
        sending = asyncio.create_task(ann.send("agent.bob", "later"))
        attempts = proxy.rejected
        await eventually(lambda: proxy.rejected > attempts, "another attempt to connect")
        assert not sending.done()
        proxy.is_closed = False
        assert (await sending).delivered_to == 1
        assert (await bob.receive(60)).payload == "later"


async def test_a_send_that_timed_out_while_disconnected_is_never_written(
    proxy: TcpProxy, dial: Dial, bob: Agent
) -> None:
    async with dial("agent.ann", proxy.url, send_timeout_s=0.5) as ann:
        proxy.is_closed = True
        proxy.cut()
        await eventually(lambda: not ann.is_connected)
        with pytest.raises(SendTimedOut):
            await ann.send("agent.bob", "too late")
        proxy.is_closed = False
        await eventually(lambda: ann.is_connected)
        await ann.send("agent.bob", "in time")
        assert (await bob.receive(60)).payload == "in time"


async def test_an_agent_reconnects_to_a_restarted_relay_without_loss(
    relay: ListeningRelay, dial: Dial
) -> None:
    async with dial("agent.ann") as ann, dial("agent.bob") as bob:
        await ann.send("agent.bob", "before")
        held = await bob.receive(60)
        await relay.stop()
        await eventually(lambda: not ann.is_connected and not bob.is_connected)
        await held.ack()
        await relay.start()
        assert (await ann.send("agent.bob", "after")).delivered_to == 1
        async with await bob.receive(60) as message:
            assert message.payload == "after"
        await eventually(lambda: relay.waiting("agent.bob") == 0)


async def test_a_reply_is_matched_to_its_request_after_a_reconnect(
    proxy: TcpProxy, dial: Dial, bob: Agent
) -> None:
    async with dial("agent.ann", proxy.url) as ann:
        asking = asyncio.create_task(ann.request("agent.bob", "?", timeout=60))
        question = await bob.receive(60)
        proxy.cut()
        await eventually(lambda: proxy.connections == 2)
        await question.reply("!")
        assert (await asking).payload == "!"
