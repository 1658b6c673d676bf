"""Stored messages first: counted, in order, in batches, each waiting for its confirmations."""

import pytest

from tests.server.sessions.sessions_harness import House, Room, kinds, numbers
from waypost import PublishResult
from waypost.server.context import ServeOptions
from waypost.testing import ManualClock
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL

HOUR_MS = 3_600_000


async def read_all(room: Room, subject: str = "agent.a") -> list[int]:
    """Connect, confirm batch after batch until `live`, and leave."""
    seat = room.sit(subject)
    found: list[int] = []
    while True:
        operations = await seat.read()
        found += numbers(operations)
        seat.ack(one for one in operations if isinstance(one, frames.Message))
        if "Live" in kinds(operations):
            seat.leave()
            return found


async def test_the_count_of_what_waits_comes_first(room: Room) -> None:
    room.store(7)
    await room.quiet()
    first, *rest = await room.sit().read()
    assert first == frames.QueueStatus(pending=7)
    assert numbers(rest) == list(range(7))


async def test_with_nothing_stored_the_count_is_nought_and_live_follows(room: Room) -> None:
    assert await room.sit().read() == [frames.QueueStatus(pending=0), frames.Live()]


async def test_expired_mail_neither_counts_nor_blocks(room: Room, clock: ManualClock) -> None:
    for number in range(60):
        room.publish(number, budget={"ttl": clock() // 1000 + HOUR_MS})
    room.store(3, first=60)
    clock.advance_ms(HOUR_MS + 1)
    status, *rest = await room.sit().read()
    assert status == frames.QueueStatus(pending=3)
    assert numbers(rest) == [60, 61, 62]


async def test_mail_that_expires_during_the_flush_is_passed_over(
    room: Room, clock: ManualClock
) -> None:
    room.store(50)
    room.publish("short", budget={"ttl": clock() // 1000 + 10})
    room.store(1, first=50)
    await room.quiet()
    seat = room.sit()
    batch = await seat.read_messages()
    clock.advance_ms(11)
    seat.ack(batch)
    assert numbers(await seat.read_messages()) == [50]


async def test_fifty_go_out_at_once_and_no_more(room: Room) -> None:
    room.store(120)
    await room.quiet()
    seat = room.sit()
    assert numbers(await seat.read()) == list(range(50))
    assert await seat.read() == []


async def test_the_next_batch_waits_for_the_last_confirmation(room: Room) -> None:
    room.store(120)
    await room.quiet()
    seat = room.sit()
    batch = await seat.read_messages()
    seat.ack(batch[:49])
    assert await seat.read() == []
    seat.ack(batch[49:])
    assert numbers(await seat.read()) == list(range(50, 100))


async def test_the_size_of_a_batch_can_be_chosen(house: House) -> None:
    room = await house.open(ServeOptions(batch=7))
    room.store(10)
    await room.quiet()
    assert numbers(await room.sit().read()) == list(range(7))


async def test_live_follows_the_last_confirmation_and_not_before(room: Room) -> None:
    room.store(3)
    await room.quiet()
    seat = room.sit()
    batch = await seat.read_messages()
    seat.ack(batch[:2])
    assert await seat.read() == []
    seat.ack(batch[2:])
    assert await seat.read() == [frames.Live()]


async def test_what_is_counted_comes_before_live_even_if_it_was_not_on_disk_yet(
    room: Room,
) -> None:
    room.store(3)
    seat = room.sit()
    status, *messages = await seat.read()
    assert status == frames.QueueStatus(pending=3)
    assert [one.was_stored for one in messages if isinstance(one, frames.Message)] == [True] * 3
    assert "Live" not in kinds(messages)


async def test_live_is_said_once(room: Room) -> None:
    seat = room.sit()
    await seat.read()
    room.store(5)
    seat.ack(await seat.read_messages())
    room.store(1, first=5)
    assert "Live" not in kinds(await seat.read())


async def test_three_hundred_stored_arrive_in_order(room: Room) -> None:
    room.store(300)
    await room.quiet()
    assert await read_all(room) == list(range(300))
    assert room.relay.metrics().total_messages == 0


async def test_one_by_one_confirmations_keep_the_order_too(room: Room) -> None:
    room.store(120)
    await room.quiet()
    seat = room.sit()
    found: list[int] = []
    while batch := await seat.read_messages():
        found += numbers(batch)
        for message in reversed(batch):
            seat.ack([message])
    assert found == list(range(120))


async def test_cut_after_ten_confirmations_the_rest_comes_in_order_without_them(
    room: Room,
) -> None:
    room.store(120)
    await room.quiet()
    seat = room.sit()
    seat.ack((await seat.read_messages())[:10])
    seat.leave()
    assert (await room.sit("agent.a").read())[0] == frames.QueueStatus(pending=110)


async def test_nothing_confirmed_comes_twice(room: Room) -> None:
    room.store(120)
    await room.quiet()
    seat = room.sit()
    seat.ack((await seat.read_messages())[:10])
    seat.leave()
    assert await read_all(room) == list(range(10, 120))


async def test_confirmations_out_of_order_leave_the_gaps_in_order(room: Room) -> None:
    room.store(20)
    await room.quiet()
    seat = room.sit()
    batch = await seat.read_messages()
    seat.ack(batch[1::2])
    seat.leave()
    assert await read_all(room) == list(range(0, 20, 2))


async def test_what_is_sent_during_the_flush_comes_after_what_was_stored(room: Room) -> None:
    room.store(60)
    await room.quiet()
    seat = room.sit()
    batch = await seat.read_messages()
    room.store(5, first=60)
    assert await seat.read() == []
    seat.ack(batch)
    assert numbers(await seat.read()) == list(range(50, 65))


async def test_a_message_leaves_only_when_confirmed(room: Room) -> None:
    room.store(2)
    await room.quiet()
    for _ in range(3):
        seat = room.sit()
        assert numbers(await seat.read()) == [0, 1]
        seat.leave()


async def test_without_confirmations_live_traffic_stops_at_its_bound(house: House) -> None:
    room = await house.open(ServeOptions(unconfirmed_max=8))
    seat = room.sit()
    await seat.read()
    room.store(20)
    batch = await seat.read_messages()
    assert numbers(batch) == list(range(8))
    seat.ack(batch[:3])
    assert numbers(await seat.read()) == [8, 9, 10]


async def test_large_messages_ahead_of_confirmations_are_bounded_by_their_bytes(
    room: Room,
) -> None:
    seat = room.sit()
    await seat.read()
    for number in range(30):
        room.publish([number, "x" * 200_000], sender=f"agent.sender-{number}")
    batch = await seat.read_messages()
    assert len(batch) == 21  # the one that goes past 4 MiB is the last
    seat.ack(batch)
    assert [number for number, _ in numbers(await seat.read())] == list(range(21, 30))


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
async def test_payloads_arrive_as_they_were_sent(room: Room, protocol: str) -> None:
    payload = {"text": "ünï\n\u2028\x00", "n": [1, -2.5, 1e300, None, True], "big": 2**63}
    room.publish(payload)
    await room.quiet()
    assert numbers(await room.sit(protocol=protocol).read()) == [payload]


async def test_given_back_it_comes_again_at_once(room: Room) -> None:
    room.store(2)
    await room.quiet()
    seat = room.sit()
    first, second = await seat.read_messages()
    seat.say(frames.Nack(ids=[first.envelope.id]))
    assert await seat.read() == []  # the other one of the batch is not confirmed yet
    seat.ack([second])
    assert numbers(await seat.read()) == [0]


async def test_given_back_with_a_delay_it_comes_after_the_delay(
    room: Room, clock: ManualClock
) -> None:
    room.store(2)
    await room.quiet()
    seat = room.sit()
    first, second = await seat.read_messages()
    seat.say(frames.Nack(ids=[first.envelope.id], delay=5.0))
    seat.ack([second])
    assert await seat.read() == [frames.Live()]
    clock.advance_ms(4_999)
    assert await seat.read() == []
    clock.advance_ms(1)
    (again,) = await seat.read()
    assert isinstance(again, frames.Message)
    assert again.was_stored, "it has waited since before the agent came"


async def test_what_others_hold_cannot_be_given_back(room: Room) -> None:
    room.store(1)
    room.store(1, to="agent.other")
    await room.quiet()
    seat, other = room.sit(), room.sit("agent.other")
    (mine,) = await seat.read_messages()
    (theirs,) = await other.read_messages()
    seat.say(frames.Nack(ids=[theirs.envelope.id]), frames.Ack(ids=[theirs.envelope.id]))
    seat.ack([mine])
    assert await seat.read() == [frames.Live()]
    other.leave()
    assert numbers(await room.sit("agent.other").read()) == [0]


async def test_confirmed_elsewhere_it_holds_up_nothing(room: Room) -> None:
    room.store(60)
    await room.quiet()
    seat = room.sit()
    batch = await seat.read_messages()
    await room.relay.ack("agent.a", [one.envelope.id for one in batch])
    seat.ack(batch)
    assert numbers(await seat.read()) == list(range(50, 60))


async def test_given_back_elsewhere_it_is_handed_out_again(room: Room) -> None:
    room.store(3)
    await room.quiet()
    seat = room.sit()
    batch = await seat.read_messages()
    for _ in range(3):
        await room.relay.nack("agent.a", [batch[0].envelope.id])
        assert numbers(await seat.read()) == []
    seat.ack(batch[1:])
    assert numbers(await seat.read()) == [0]


async def test_given_back_elsewhere_again_and_again_it_counts_once(room: Room) -> None:
    seat = room.sit()
    await seat.read()
    sent = room.publish("x" * 200_000)
    for _ in range(30):
        assert len(await seat.read_messages()) == 1
        await room.relay.nack("agent.a", sent.message_id)
    room.store(1)
    assert numbers(await seat.read())[-1] == 0


async def test_with_its_mailbox_taken_away_the_agent_stays_and_gets_nothing(room: Room) -> None:
    seat = room.sit()
    await seat.read()
    room.relay.unregister_endpoint("agent.a")
    seat.say(frames.Ack(ids=["x"]), frames.Nack(ids=["x"]))
    assert await seat.read() == []
    room.relay.register_endpoint("agent.a")
    room.store(1)
    assert numbers(await seat.read()) == [0]


async def test_the_same_id_sent_twice_is_delivered_once(room: Room) -> None:
    seat = room.sit()
    await seat.read()
    results: list[PublishResult] = [room.publish(1, message_id="same") for _ in range(2)]
    assert results[0] == results[1]
    seat.ack(await seat.read_messages())
    room.publish(1, message_id="same")
    assert await seat.read() == []
