"""Slow consumers and rejected floods: no other agent is delayed, nothing is lost."""

import asyncio
from collections.abc import Callable, Iterator
from time import monotonic

import msgspec
import pytest

from tests.server.sessions.memory_server import MemoryServer, ServerLauncher
from tests.server.sessions.raw_agent import RawAgent, assert_works, connect, enter, payload_of
from tests.server.sessions.transports import MemoryTransport
from waypost import BackpressureConfig, QosConfig
from waypost.client.identity import Identity
from waypost.policy.bounds import outbox_max_operations
from waypost.server import websocket
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL

Identities = Callable[[str], Identity]
LIMITLESS = {
    "qos": QosConfig(enabled=False),
    "backpressure": BackpressureConfig(enabled=False),
}


@pytest.fixture(autouse=True)
def nothing_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


async def test_a_slow_consumer_delays_no_other_and_is_disconnected_at_the_bound(
    launcher: ServerLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_TIMEOUT_S", 0.01)
    server = await launcher.open(**LIMITLESS)
    sloth, one, two = [
        await enter(server.context, f"agent.{name}") for name in ("sloth", "one", "two")
    ]
    assert isinstance(sloth.transport, MemoryTransport)
    sloth.transport.reads.clear()
    raw = msgspec.Raw(b"1")
    sends = [frames.Send(ref=ref, subject="agent.void", payload=raw) for ref in range(256)]
    for _ in range(outbox_max_operations // 256 + 3):
        sloth.transport.put(sloth.frame(sends))
        await one.send("agent.sloth", "for you")
        await one.send("agent.two", "and for you")
        await two.ack(await two.until(frames.Message))
    await asyncio.wait_for(sloth.transport.task, 60)
    subjects = {agent.subject for agent in server.context.hub.connected()}
    assert subjects == {"agent.one", "agent.two"}
    await assert_works(one)
    await one.disconnect()
    await two.disconnect()


async def test_messages_unread_by_a_slow_consumer_are_delivered_after_reconnect(
    launcher: ServerLauncher, monkeypatch: pytest.MonkeyPatch, identities: Identities
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_TIMEOUT_S", 0.01)
    monkeypatch.setattr("waypost.server.sessions.outbox.outbox_max_operations", 20)
    server = await launcher.open(**LIMITLESS)
    transport = MemoryTransport(server.context, JSON_PROTOCOL)
    sloth = await connect(transport, identities("agent.a"))
    await sloth.until(frames.Live)
    transport.reads.clear()
    server.store(60)
    await server.wait_until_idle()
    await asyncio.wait_for(transport.task, 60)
    monkeypatch.undo()
    back = RawAgent(MemoryTransport(server.context, JSON_PROTOCOL))
    await back.authenticate(identities("agent.a"))
    assert await back.expect(frames.QueueStatus) == frames.QueueStatus(pending=60)
    got = [payload_of(await back.expect(frames.Message)) for _ in range(50)]
    assert got == list(range(50))
    await back.disconnect()


async def test_receipts_unread_by_a_slow_consumer_are_stored(
    server: MemoryServer, identities: Identities
) -> None:
    transport = MemoryTransport(server.context, JSON_PROTOCOL)
    sender = await connect(transport, identities("agent.a"))
    recipient = await enter(server.context, "agent.b")
    answer = await sender.send("agent.b", 1)
    transport.reads.clear()
    await recipient.ack(await recipient.until(frames.Message))
    await assert_works(recipient)  # by now the writer has taken the receipt
    await sender.disconnect()
    back = await connect(MemoryTransport(server.context, JSON_PROTOCOL), identities("agent.a"))
    kept = await back.expect(frames.DeliveryConfirm)
    assert isinstance(answer, frames.SendResult)
    assert kept.message_id == answer.message_id
    await back.disconnect()
    await recipient.disconnect()


async def test_a_rejected_flood_is_read_more_slowly_and_delays_no_other(
    server: MemoryServer,
) -> None:
    flooder, other = (
        await enter(server.context, "agent.flooder"),
        await enter(server.context, "agent.other"),
    )
    begun = monotonic()
    for _ in range(30):
        await flooder.begin_send("not an address", 1)
    await assert_works(other)
    assert isinstance(flooder.transport, MemoryTransport)
    assert flooder.transport.unread_count < 15
    for _ in range(30):
        await flooder.expect(frames.Error)
    await flooder.send_frame(frames.Ack(ids=[]))
    answer = await flooder.send("agent.echo", "sorry")
    assert isinstance(answer, frames.SendResult)
    took = monotonic() - begun
    assert took > sum(range(30)) / 1000
    assert (await flooder.send("agent.echo", "quick again")).ref is not None
    await flooder.disconnect()
    await other.disconnect()


async def test_sends_that_reach_many_leave_others_their_turn(launcher: ServerLauncher) -> None:
    server = await launcher.open(**LIMITLESS)
    for number in range(40):
        server.connect(f"team.number-{number}")
    sender = server.connect("agent.a").session
    send = frames.Send(ref=1, subject="team.*", payload=msgspec.Raw(b"1"))
    assert sender.handle([send] * 256) == 2
    literal = frames.Send(ref=1, subject="team.number-1", payload=msgspec.Raw(b"1"))
    assert sender.handle([literal] * 32) == 32


async def test_acks_of_nothing_are_read_more_slowly(launcher: ServerLauncher) -> None:
    server = await launcher.open(**LIMITLESS)
    agent = server.connect("agent.a")
    agent.send_frame(*[frames.Ack(ids=[])] * 5)
    assert agent.session.rejected_in_a_row == 5
    await agent.send("agent.a", "to myself")
    assert agent.session.rejected_in_a_row == 0
    agent.send_frame(frames.Ack(ids=["unknown"]))
    assert agent.session.rejected_in_a_row == 1
    server.store(1)
    agent.ack(await agent.read_messages())
    assert agent.session.rejected_in_a_row == 0
