"""Whatever ends the relay or a connection: what was confirmed is gone, what was not is there."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.faults.plain_journal import add_up_directory, committed
from tests.faults.syncs import Syncs, install_syncs
from tests.server.sessions.agents import RawAgent, connect
from tests.server.sessions.sessions_harness import House, Room, Seat, numbers
from tests.server.sessions.transports import PretendedLine
from waypost.client.identity import Identity
from waypost.relay.data_dir import DataDir
from waypost.relay.verify.verify import verify
from waypost.server.sessions.errors import AlreadyConnected, TooManyConnections
from waypost.testing import ManualClock
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL


async def begin_flush(room: Room) -> tuple[Seat, list[frames.Message]]:
    """120 stored, the first 10 confirmed."""
    room.store(120)
    await room.quiet()
    seat = room.sit()
    batch = await seat.read_messages()
    seat.ack(batch[:10])
    await room.quiet()
    return seat, batch


async def read_all(room: Room) -> list[int]:
    seat = room.sit()
    found: list[int] = []
    while batch := await seat.read_messages():
        found += numbers(batch)
        seat.ack(batch)
    return found


async def test_after_a_restart_during_the_flush_the_rest_comes_in_order(house: House) -> None:
    await begin_flush(await house.open())
    room = await house.open()
    assert await read_all(room) == list(range(10, 120))


async def test_after_a_crash_during_the_flush_the_confirmed_do_not_come_back(
    house: House, tmp_path: Path, clock: ManualClock
) -> None:
    await begin_flush(await house.open())
    crashed = House(shutil.copytree(house.data, tmp_path / "crashed"), clock)
    try:
        assert await read_all(await crashed.open()) == list(range(10, 120))
    finally:
        await crashed.close()


async def test_a_crash_with_messages_held_and_an_index_lost_loses_nothing(
    house: House, tmp_path: Path, clock: ManualClock
) -> None:
    await begin_flush(await house.open())
    copy = shutil.copytree(house.data, tmp_path / "crashed")
    for path in copy.glob("index.db*"):
        path.unlink()
    crashed = House(copy, clock)
    try:
        assert await read_all(await crashed.open()) == list(range(10, 120))
    finally:
        await crashed.close()


async def test_a_delay_outlives_a_restart(house: House, clock: ManualClock) -> None:
    room = await house.open()
    room.store(1)
    await room.quiet()
    seat = room.sit()
    (message,) = await seat.read_messages()
    seat.say(frames.Nack(ids=[message.envelope.id], delay=60.0))
    await room.quiet()
    room = await house.open()
    seat = room.sit()
    assert numbers(await seat.read()) == []
    clock.advance_ms(60_000)
    assert numbers(await seat.read()) == [0]


async def test_connecting_and_leaving_are_written_down(house: House) -> None:
    room = await house.open()
    first, second = room.sit(), room.sit("agent.b")
    first.leave()
    first.leave()
    await room.quiet()
    await house.close()
    del second
    sessions = [
        (event["subject"], event["action"])
        for event in committed(house.data)
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
    house: House, storage: str
) -> None:
    room = await house.open(storage=storage)
    seat, _ = await begin_flush(room)
    seat.leave()
    seat = room.sit()
    await seat.read()
    await house.close()
    report = await asyncio.to_thread(verify, DataDir(house.data))
    assert report.findings == []
    room = await house.open(storage=storage)
    total = add_up_directory(house.data)
    held = {
        box.subject: list(box.live) for box in room.relay._runtime.ledger.state.mailboxes.values()
    }
    assert {name: ids for name, ids in held.items() if ids} == total.order()


async def test_a_second_session_for_a_live_subject_is_rejected_and_the_first_works_on(
    room: Room,
) -> None:
    first = room.sit()
    await first.read()
    with pytest.raises(AlreadyConnected, match=r"agent\.a is already connected"):
        room.sit()
    room.store(1)
    assert numbers(await first.read()) == [0]
    first.leave()
    assert numbers(await room.sit().read()) == [0]


async def test_there_is_a_bound_on_agents_at_once(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.server.sessions.hub.connections_max", 2)
    room.sit("agent.a")
    seat = room.sit("agent.b")
    with pytest.raises(TooManyConnections):
        room.sit("agent.c")
    seat.leave()
    room.sit("agent.c")


async def test_a_session_that_cannot_begin_leaves_nothing_behind(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.relay.delivery.signals.signal_listeners_max", 0)
    with pytest.raises(ValueError, match="too many listeners"):
        room.sit()
    monkeypatch.undo()
    assert len(room.context.hub) == 0
    room.store(1)
    assert numbers(await room.sit().read()) == [0]


@pytest.fixture
def syncs(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[Syncs]:
    """Every `fdatasync` from here on; none is held back when the house is closed."""
    installed = install_syncs(monkeypatch)
    yield installed
    installed.release()


async def test_nothing_is_answered_before_it_is_on_disk(house: House, syncs: Syncs) -> None:
    room = await house.open(durability="fsync")
    seat, other = room.sit(), room.sit("agent.b")
    await seat.read()
    await other.read()
    begun = syncs.begun
    syncs.hold()
    other.put("agent.a", 1)
    await eventually(lambda: syncs.begun > begun, "the sync")
    assert len(other.session.outbox) == 0, "sent was said too early"
    assert len(seat.session.outbox) == 0, "the message went out too early"
    syncs.release()
    assert [type(one) for one in await other.read()] == [frames.SendResult]
    assert numbers(await seat.read()) == [1]


async def test_a_sender_is_told_of_a_confirmation_once_that_is_on_disk(
    house: House, syncs: Syncs
) -> None:
    room = await house.open(durability="fsync")
    seat, other = room.sit(), room.sit("agent.b")
    await other.send("agent.a", 1)
    batch = await seat.read_messages()
    begun = syncs.begun
    syncs.hold()
    seat.ack(batch)
    await eventually(lambda: syncs.begun > begun, "the sync")
    assert len(other.session.outbox) == 0
    syncs.release()
    assert [type(one) for one in await other.read()] == [frames.DeliveryConfirm]


async def test_when_the_disk_fails_everyone_is_sent_away_and_nothing_is_promised(
    house: House, syncs: Syncs
) -> None:
    room = await house.open(durability="fsync")
    seat, other = room.sit(), room.sit("agent.b")
    await seat.read()
    await other.read()
    syncs.fail()
    other.put("agent.a", 1)
    await eventually(lambda: other.dismissed, "the failure")
    assert "could not be written" in other.dismissed[0]
    assert len(other.session.outbox) == len(seat.session.outbox) == 0
    for one in (seat, other):
        one.leave()
    assert len(room.context.hub) == 0


async def test_after_the_disk_failed_every_connection_ends_with_a_reason(
    house: House, syncs: Syncs, caplog: pytest.LogCaptureFixture
) -> None:
    room = await house.open(durability="fsync")
    agents = [
        await connect(PretendedLine(room.context, JSON_PROTOCOL), Identity.new(f"agent.{name}"))
        for name in "ab"
    ]
    syncs.fail()
    for agent in agents:
        await agent.begin_send("agent.c", 1)
        assert "could not be written" in (await agent.until(frames.Error)).error
        assert (await agent.end()).code == frames.CLOSE_GOING_AWAY
    late = RawAgent(PretendedLine(room.context, JSON_PROTOCOL))
    await late.expect(frames.Challenge)
    await late.leave()
    assert len(room.context.hub) == 0
    assert [one for one in caplog.records if one.name == "waypost.server"] == []


async def test_answers_that_need_no_disk_do_not_overtake_those_that_do(room: Room) -> None:
    seat = room.sit("agent.b")
    await seat.read()
    room.publish("first in the batch")
    waiting = room.relay.durable()
    assert waiting is not None
    waiting.add_done_callback(lambda _: seat.put("not an address", 2))
    seat.put("agent.a", 1)
    answers = await seat.read()
    assert [(type(one), getattr(one, "ref", None)) for one in answers] == [
        (frames.SendResult, 1),
        (frames.Error, 2),
    ]


async def test_a_session_that_fails_to_take_its_mail_does_not_stop_the_relay(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seat, other = room.sit(), room.sit("agent.other")
    await seat.read()
    await other.read()
    monkeypatch.setattr(seat.session.outbox, "put", None)
    room.store(1)
    room.store(1, to="agent.other")
    assert numbers(await other.read()) == [0]
    assert seat.dismissed == ["internal error of the relay; connect again"]
    assert "delivery to the consumer of agent.a failed" in caplog.text
