"""Crashes, restarts and disk failures: confirmed messages are gone, all others are kept."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.faults.plain_journal import add_up_directory, committed
from tests.faults.syncs import Syncs, install_syncs
from tests.server.sessions.memory_server import (
    ConnectedAgent,
    MemoryServer,
    ServerLauncher,
    numbers,
)
from tests.server.sessions.raw_agent import RawAgent, connect
from tests.server.sessions.transports import MemoryTransport
from waypost.client.identity import Identity
from waypost.relay.data_dir import DataDir
from waypost.relay.verify.verify import verify
from waypost.server.sessions.errors import AlreadyConnected, TooManyConnections
from waypost.testing import ManualClock
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL


async def begin_flush(server: MemoryServer) -> tuple[ConnectedAgent, list[frames.Message]]:
    """Store 120 messages and confirm the first 10."""
    server.store(120)
    await server.wait_until_idle()
    agent = server.connect()
    batch = await agent.read_messages()
    agent.ack(batch[:10])
    await server.wait_until_idle()
    return agent, batch


async def read_all(server: MemoryServer) -> list[int]:
    agent = server.connect()
    found: list[int] = []
    while batch := await agent.read_messages():
        found += numbers(batch)
        agent.ack(batch)
    return found


async def test_after_a_restart_during_the_flush_the_rest_is_delivered_in_order(
    launcher: ServerLauncher,
) -> None:
    await begin_flush(await launcher.open())
    server = await launcher.open()
    assert await read_all(server) == list(range(10, 120))


async def test_after_a_crash_during_the_flush_confirmed_messages_do_not_return(
    launcher: ServerLauncher, tmp_path: Path, clock: ManualClock
) -> None:
    await begin_flush(await launcher.open())
    crashed = ServerLauncher(shutil.copytree(launcher.data, tmp_path / "crashed"), clock)
    try:
        assert await read_all(await crashed.open()) == list(range(10, 120))
    finally:
        await crashed.close()


async def test_a_crash_with_messages_in_flight_and_a_lost_index_loses_nothing(
    launcher: ServerLauncher, tmp_path: Path, clock: ManualClock
) -> None:
    await begin_flush(await launcher.open())
    copy = shutil.copytree(launcher.data, tmp_path / "crashed")
    for path in copy.glob("index.db*"):
        path.unlink()
    crashed = ServerLauncher(copy, clock)
    try:
        assert await read_all(await crashed.open()) == list(range(10, 120))
    finally:
        await crashed.close()


async def test_a_delay_outlives_a_restart(launcher: ServerLauncher, clock: ManualClock) -> None:
    server = await launcher.open()
    server.store(1)
    await server.wait_until_idle()
    agent = server.connect()
    (message,) = await agent.read_messages()
    agent.send_frame(frames.Nack(ids=[message.envelope.id], delay=60.0))
    await server.wait_until_idle()
    server = await launcher.open()
    agent = server.connect()
    assert numbers(await agent.read()) == []
    clock.advance_ms(60_000)
    assert numbers(await agent.read()) == [0]


async def test_connections_and_disconnections_are_journaled(launcher: ServerLauncher) -> None:
    server = await launcher.open()
    first, second = server.connect(), server.connect("agent.b")
    first.disconnect()
    first.disconnect()
    await server.wait_until_idle()
    await launcher.close()
    del second
    sessions = [
        (event["subject"], event["action"])
        for event in committed(launcher.data)
        if event["kind"] == "session"
    ]
    assert sessions == [
        ("agent.a", "connected"),
        ("agent.b", "connected"),
        ("agent.a", "disconnected"),
        ("agent.b", "disconnected"),
    ]


@pytest.mark.parametrize("storage", ["journal", "maildir"])
async def test_a_directory_with_sessions_in_its_journal_is_sound(
    launcher: ServerLauncher, storage: str
) -> None:
    server = await launcher.open(storage=storage)
    agent, _ = await begin_flush(server)
    agent.disconnect()
    agent = server.connect()
    await agent.read()
    await launcher.close()
    report = await asyncio.to_thread(verify, DataDir(launcher.data))
    assert report.findings == []
    server = await launcher.open(storage=storage)
    total = add_up_directory(launcher.data)
    held = {
        box.subject: list(box.live) for box in server.relay._runtime.ledger.state.mailboxes.values()
    }
    assert {name: ids for name, ids in held.items() if ids} == total.order()


async def test_a_second_session_of_a_subject_is_rejected_and_the_first_continues(
    server: MemoryServer,
) -> None:
    first = server.connect()
    await first.read()
    with pytest.raises(AlreadyConnected, match=r"agent\.a is already connected"):
        server.connect()
    server.store(1)
    assert numbers(await first.read()) == [0]
    first.disconnect()
    assert numbers(await server.connect().read()) == [0]


async def test_there_is_a_bound_on_connected_agents(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.server.sessions.hub.connections_max", 2)
    server.connect("agent.a")
    agent = server.connect("agent.b")
    with pytest.raises(TooManyConnections):
        server.connect("agent.c")
    agent.disconnect()
    server.connect("agent.c")


async def test_a_session_that_cannot_start_leaves_nothing_behind(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.relay.delivery.signals.signal_listeners_max", 0)
    with pytest.raises(ValueError, match="too many listeners"):
        server.connect()
    monkeypatch.undo()
    assert len(server.context.hub) == 0
    server.store(1)
    assert numbers(await server.connect().read()) == [0]


@pytest.fixture
def syncs(launcher: ServerLauncher, monkeypatch: pytest.MonkeyPatch) -> Iterator[Syncs]:
    """Every `fdatasync`, which a test may hold; none is held once the server closes."""
    installed = install_syncs(monkeypatch)
    yield installed
    installed.release()


async def test_no_response_is_sent_before_its_decision_is_on_disk(
    launcher: ServerLauncher, syncs: Syncs
) -> None:
    server = await launcher.open(durability="fsync")
    agent, other = server.connect(), server.connect("agent.b")
    await agent.read()
    await other.read()
    begun = syncs.begun
    syncs.hold()
    other.put("agent.a", 1)
    await eventually(lambda: syncs.begun > begun, "the sync")
    assert len(other.session.outbox) == 0, "sent was said too early"
    assert len(agent.session.outbox) == 0, "the message went out too early"
    syncs.release()
    assert [type(one) for one in await other.read()] == [frames.SendResult]
    assert numbers(await agent.read()) == [1]


async def test_a_receipt_is_sent_once_the_confirmation_is_on_disk(
    launcher: ServerLauncher, syncs: Syncs
) -> None:
    server = await launcher.open(durability="fsync")
    agent, other = server.connect(), server.connect("agent.b")
    await other.send("agent.a", 1)
    batch = await agent.read_messages()
    begun = syncs.begun
    syncs.hold()
    agent.ack(batch)
    await eventually(lambda: syncs.begun > begun, "the sync")
    assert len(other.session.outbox) == 0
    syncs.release()
    assert [type(one) for one in await other.read()] == [frames.DeliveryConfirm]


async def test_when_the_disk_fails_agents_are_disconnected_and_nothing_is_confirmed(
    launcher: ServerLauncher, syncs: Syncs
) -> None:
    server = await launcher.open(durability="fsync")
    agent, other = server.connect(), server.connect("agent.b")
    await agent.read()
    await other.read()
    syncs.fail()
    other.put("agent.a", 1)
    await eventually(lambda: other.dismissed, "the failure")
    assert "could not be written" in other.dismissed[0]
    assert len(other.session.outbox) == len(agent.session.outbox) == 0
    for one in (agent, other):
        one.disconnect()
    assert len(server.context.hub) == 0


async def test_after_the_disk_failed_every_connection_ends_with_a_reason(
    launcher: ServerLauncher, syncs: Syncs, caplog: pytest.LogCaptureFixture
) -> None:
    server = await launcher.open(durability="fsync")
    agents = [
        await connect(MemoryTransport(server.context, JSON_PROTOCOL), Identity.new(f"agent.{name}"))
        for name in "ab"
    ]
    syncs.fail()
    for agent in agents:
        await agent.begin_send("agent.c", 1)
        assert "could not be written" in (await agent.until(frames.Error)).error
        assert (await agent.end()).code == frames.CLOSE_GOING_AWAY
    late = RawAgent(MemoryTransport(server.context, JSON_PROTOCOL))
    await late.expect(frames.Challenge)
    await late.disconnect()
    assert len(server.context.hub) == 0
    assert [one for one in caplog.records if one.name == "waypost.server"] == []


async def test_responses_without_disk_writes_do_not_overtake_those_with(
    server: MemoryServer,
) -> None:
    agent = server.connect("agent.b")
    await agent.read()
    server.publish("first in the batch")
    waiting = server.relay.durable()
    assert waiting is not None
    waiting.add_done_callback(lambda _: agent.put("not an address", 2))
    agent.put("agent.a", 1)
    answers = await agent.read()
    assert [(type(one), getattr(one, "ref", None)) for one in answers] == [
        (frames.SendResult, 1),
        (frames.Error, 2),
    ]


async def test_a_session_that_fails_during_delivery_does_not_stop_the_relay(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent, other = server.connect(), server.connect("agent.other")
    await agent.read()
    await other.read()
    monkeypatch.setattr(agent.session.outbox, "put", None)
    server.store(1)
    server.store(1, to="agent.other")
    assert numbers(await other.read()) == [0]
    assert agent.dismissed == ["internal error of the relay; connect again"]
    assert "delivery to the consumer of agent.a failed" in caplog.text
