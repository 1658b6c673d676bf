"""Agents that pull: what they ask for, when they ask, and nothing by itself."""

import asyncio

import pytest

from tests.server.sessions.sessions_harness import House, Room, Seat, kinds, numbers
from waypost import BackpressureConfig, QosConfig
from waypost.server.sessions.deliveries import DeliveryLimits
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL


async def pull(room: Room, **more: object) -> Seat:
    seat = room.sit(receive="pull", **more)
    await seat.read()
    return seat


async def fetch(seat: Seat, **asked: object) -> list[frames.Message]:
    seat.say(frames.Fetch(ref=1, **asked))
    (answer,) = await seat.read()
    assert isinstance(answer, frames.FetchedMessages)
    assert answer.ref == 1
    return answer.messages


async def test_it_is_told_how_much_waits_and_given_nothing(room: Room) -> None:
    room.store(3)
    await room.quiet()
    seat = room.sit(receive="pull")
    assert await seat.read() == [frames.QueueStatus(pending=3)]
    room.store(1, first=3)
    assert await seat.read() == []


async def test_it_is_given_as_many_as_it_asks_for(room: Room) -> None:
    room.store(5)
    await room.quiet()
    seat = await pull(room)
    assert numbers(await fetch(seat, limit=2)) == [0, 1]
    assert numbers(await fetch(seat, limit=2)) == [2, 3]
    assert numbers(await fetch(seat)) == [4]


async def test_what_it_fetched_waited_and_leaves_when_confirmed(room: Room) -> None:
    sender = room.sit("agent.b")
    await sender.send("agent.a", 1)
    seat = await pull(room)
    (message,) = await fetch(seat)
    assert message.was_stored
    seat.ack([message])
    (told,) = await sender.read()
    assert isinstance(told, frames.DeliveryConfirm)
    assert told.was_stored
    seat.leave()
    assert await room.sit().read() == [frames.QueueStatus(pending=0), frames.Live()]


async def test_larger_ones_stay_where_they_are_and_in_order(room: Room) -> None:
    sizes = [10, 20_000, 20, 30_000, 30]
    for number, size in enumerate(sizes):
        room.publish([number, "x" * size])
    await room.quiet()
    seat = await pull(room)
    small = await fetch(seat, max_size_bytes=8192)
    assert [number for number, _ in numbers(small)] == [0, 2, 4]
    assert await fetch(seat, max_size_bytes=8192) == []
    seat.ack(small)
    assert [number for number, _ in numbers(await fetch(seat))] == [1, 3]


async def test_it_may_wait_for_the_first_message(room: Room) -> None:
    seat = await pull(room)
    seat.say(frames.Fetch(ref=7, wait=60.0))
    assert await seat.read() == []
    room.store(2)
    (answer,) = await seat.read()
    assert isinstance(answer, frames.FetchedMessages)
    assert (answer.ref, numbers(answer.messages)) == (7, [0, 1])


async def test_when_the_wait_is_over_the_answer_is_empty(room: Room) -> None:
    seat = await pull(room)
    seat.say(frames.Fetch(ref=7, wait=0.01))
    answer = await asyncio.wait_for(seat.session.outbox.take(1, 1), 5)
    assert answer == [frames.FetchedMessages(ref=7, messages=[])]


async def test_it_fetches_one_at_a_time(room: Room) -> None:
    seat = await pull(room)
    seat.say(frames.Fetch(ref=1, wait=60.0), frames.Fetch(ref=2))
    (answer,) = await seat.read()
    assert isinstance(answer, frames.Error)
    assert answer.ref == 2
    room.store(1)
    assert kinds(await seat.read()) == ["FetchedMessages"]


async def test_an_agent_whose_mail_comes_by_itself_cannot_fetch(room: Room) -> None:
    seat = room.sit()
    await seat.read()
    seat.say(frames.Fetch(ref=1))
    (answer,) = await seat.read()
    assert isinstance(answer, frames.Error)
    assert answer.ref == 1


async def test_a_thousand_unconfirmed_are_the_most(house: House) -> None:
    room = await house.open(
        qos=QosConfig(enabled=False), backpressure=BackpressureConfig(enabled=False)
    )
    room.store(1000)
    await room.quiet()
    seat = await pull(room)
    held = [one for _ in range(4) for one in await fetch(seat, limit=250)]
    seat.ack(held[:1])
    room.store(5, first=1000)
    await room.quiet()
    assert numbers(await fetch(seat, limit=50)) == [1000]


async def test_a_full_hand_waits_until_something_is_confirmed(room: Room) -> None:
    for number in range(30):
        room.publish([number, "x" * 200_000], sender=f"agent.sender-{number}")
    await room.quiet()
    seat = await pull(room)
    held: list[frames.Message] = []
    while batch := await fetch(seat):
        held += batch
    assert len(held) == 21
    seat.say(frames.Fetch(ref=2, wait=60.0))
    assert await seat.read() == []
    seat.ack(held)
    assert kinds(await seat.read()) == ["FetchedMessages"]


async def test_one_answer_is_no_longer_than_a_frame_may_be(room: Room) -> None:
    for number in range(6):
        room.publish([number, "x" * 40_000])
    await room.quiet()
    seat = await pull(room, limits=DeliveryLimits(50, 256, answer_max_bytes=100_000))
    assert [len(await fetch(seat)) for _ in range(3)] == [3, 3, 0]


async def test_leaving_while_it_waits_leaves_nothing_behind(room: Room) -> None:
    seat = await pull(room)
    seat.say(frames.Fetch(ref=1, wait=60.0))
    seat.leave()
    room.store(1)
    assert numbers(await room.sit().read()) == [0]


async def test_kept_confirmations_come_beside_the_messages(room: Room) -> None:
    room.sit("agent.b").leave()
    room.publish(1)
    recipient = room.sit()
    recipient.ack(await recipient.read_messages())
    await room.quiet()
    seat = room.sit("agent.b", receive="pull")
    await seat.read()
    seat.say(frames.Fetch(ref=1))
    assert kinds(await seat.read()) == ["DeliveryConfirm", "FetchedMessages"]


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
async def test_the_tiers_of_senders_are_told_to_whoever_asks(room: Room, protocol: str) -> None:
    room.sit("agent.known").leave()
    seat = await pull(room, protocol=protocol)
    await seat.send("agent.known", "hello")
    room.publish(1, sender="agent.known")
    room.publish(2, sender="agent.stranger")
    await room.quiet()
    assert [one.tier for one in await fetch(seat, tiers=True)] == [3, 1]
    room.publish(3, sender="agent.known")
    await room.quiet()
    assert [one.tier for one in await fetch(seat)] == [0]


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
async def test_payloads_are_the_same_in_every_encoding(room: Room, protocol: str) -> None:
    room.publish({"a": [1, "ü"]})
    await room.quiet()
    assert numbers(await fetch(await pull(room, protocol=protocol))) == [{"a": [1, "ü"]}]
