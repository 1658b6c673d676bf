"""What senders learn about their messages: confirmed, whether it had to wait, now or later."""

import logging

import pytest

from tests.server.sessions.sessions_harness import House, Room, kinds, numbers
from waypost import AccessRule, BackpressureConfig
from waypost.policy.reserved_names import ANONYMOUS, RELAY
from waypost.wire import frames
from waypost.wire.frames import FromRelay


def confirmed(operations: list[FromRelay]) -> list[tuple[str, bool]]:
    """Which messages were confirmed, and whether they had to wait."""
    return [
        (one.message_id, one.was_stored)
        for one in operations
        if isinstance(one, frames.DeliveryConfirm)
    ]


async def test_a_connected_sender_is_told_of_a_live_message(room: Room) -> None:
    sender, recipient = room.sit("agent.b"), room.sit()
    await recipient.read()
    (answer,) = await sender.send("agent.a", 1)
    assert isinstance(answer, frames.SendResult)
    (message,) = await recipient.read_messages()
    assert not message.was_stored
    recipient.ack([message])
    assert await sender.read() == [
        frames.DeliveryConfirm(message_id=answer.message_id, recipient="agent.a", was_stored=False)
    ]


async def test_what_waited_is_said_to_have_been_stored(room: Room) -> None:
    sender = room.sit("agent.b")
    (answer,) = await sender.send("agent.a", 1)
    assert isinstance(answer, frames.SendResult)
    recipient = room.sit()
    (message,) = await recipient.read_messages()
    assert message.was_stored
    recipient.ack([message])
    assert confirmed(await sender.read()) == [(answer.message_id, True)]


async def test_what_was_sent_during_the_flush_had_to_wait(room: Room) -> None:
    room.store(1)
    await room.quiet()
    recipient = room.sit()
    (first,) = await recipient.read_messages()
    room.publish("later")
    await room.quiet()
    recipient.ack([first])
    (second,) = await recipient.read_messages()
    assert second.was_stored


async def test_live_but_unconfirmed_at_the_end_it_comes_back_as_stored(room: Room) -> None:
    sender, recipient = room.sit("agent.b"), room.sit()
    await recipient.read()
    await sender.send("agent.a", 1)
    (message,) = await recipient.read_messages()
    recipient.leave()
    recipient = room.sit()
    (again,) = await recipient.read_messages()
    assert (again.envelope.id, message.was_stored, again.was_stored) == (
        message.envelope.id,
        False,
        True,
    )
    recipient.ack([again])
    assert confirmed(await sender.read()) == [(message.envelope.id, True)]


async def test_an_absent_sender_finds_its_confirmations_when_it_comes(room: Room) -> None:
    sender = room.sit("agent.b")
    (answer,) = await sender.send("agent.a", 1)
    sender.leave()
    recipient = room.sit()
    recipient.ack(await recipient.read_messages())
    await room.quiet()
    status, kept = await room.sit("agent.b").read()
    assert status == frames.QueueStatus(pending=1)
    assert isinstance(answer, frames.SendResult)
    assert isinstance(kept, frames.DeliveryConfirm)
    assert (kept.message_id, kept.recipient, kept.was_stored) == (
        answer.message_id,
        "agent.a",
        True,
    )


async def test_kept_confirmations_come_until_they_are_confirmed_themselves(room: Room) -> None:
    room.sit("agent.b").leave()
    room.publish(1)
    recipient = room.sit()
    recipient.ack(await recipient.read_messages())
    for _ in range(2):
        sender = room.sit("agent.b")
        _, kept = await sender.read()
        sender.leave()
    assert isinstance(kept, frames.DeliveryConfirm)
    assert kept.id is not None
    sender = room.sit("agent.b")
    await sender.read()
    sender.say(frames.Ack(ids=[kept.id]))
    assert await sender.read() == [frames.Live()]
    sender.leave()
    assert kinds(await room.sit("agent.b").read()) == ["QueueStatus", "Live"]


async def test_confirmations_are_kept_across_a_restart(house: House) -> None:
    room = await house.open()
    room.sit("agent.b").leave()
    result = room.publish(1)
    recipient = room.sit()
    recipient.ack(await recipient.read_messages())
    await room.quiet()
    room = await house.open()
    assert confirmed(await room.sit("agent.b").read()) == [(result.message_id, True)]


async def test_confirmations_make_no_confirmations(room: Room) -> None:
    room.sit("agent.b").leave()
    room.publish(1)
    recipient = room.sit()
    recipient.ack(await recipient.read_messages())
    sender = room.sit("agent.b")
    _, kept = await sender.read()
    assert isinstance(kept, frames.DeliveryConfirm)
    assert kept.id is not None
    sender.say(frames.Ack(ids=[kept.id]))
    await sender.read()
    assert await recipient.read() == [frames.Live()]
    assert room.relay.metrics().total_messages == 0
    assert RELAY not in {one.subject for one in room.relay.list_endpoints()}


async def test_many_confirmed_at_once_are_kept_as_one_message(room: Room) -> None:
    room.sit("agent.b").leave()
    sent = [room.publish(number).message_id for number in range(20)]
    recipient = room.sit()
    recipient.ack(await recipient.read_messages())
    status, *kept = await room.sit("agent.b").read()
    assert status == frames.QueueStatus(pending=1)
    assert confirmed(kept) == [(one, True) for one in sent]
    ids = [one.id for one in kept if isinstance(one, frames.DeliveryConfirm)]
    assert ids[:-1] == [None] * 19, "one ack for all: the last has the id"
    assert ids[-1] is not None


async def test_where_payloads_must_be_small_many_confirmations_are_kept_as_several(
    house: House,
) -> None:
    room = await house.open(max_payload_bytes=500)
    room.sit("agent.b").leave()
    sent = [room.publish(number).message_id for number in range(20)]
    recipient = room.sit()
    recipient.ack(await recipient.read_messages())
    found: list[tuple[str, bool]] = []
    sender = room.sit("agent.b")
    while batch := [one for one in await sender.read() if isinstance(one, frames.DeliveryConfirm)]:
        found += confirmed(list(batch))
        sender.say(frames.Ack(ids=[one.id for one in batch if one.id is not None]))
    assert found == [(one, True) for one in sent]


async def test_each_recipient_of_a_broadcast_confirms_for_itself(room: Room) -> None:
    sender = room.sit("agent.b")
    recipients = {name: room.sit(name) for name in ("agent.team.x", "agent.team.y")}
    (answer,) = await sender.send("agent.team.*", "all")
    assert isinstance(answer, frames.SendResult)
    for seat in recipients.values():
        seat.ack(await seat.read_messages())
    told = await sender.read()
    assert {one.recipient for one in told if isinstance(one, frames.DeliveryConfirm)} == set(
        recipients
    )


@pytest.mark.parametrize("name", [ANONYMOUS, RELAY])
async def test_nobody_is_told_under_the_relays_own_names(room: Room, name: str) -> None:
    room.relay.register_endpoint(name)
    room.publish(1, sender=name)
    recipient = room.sit()
    recipient.ack(await recipient.read_messages())
    await room.quiet()
    assert room.relay.metrics().total_messages == 0


async def test_a_sender_without_a_mailbox_gets_none(room: Room) -> None:
    room.publish(1, sender="agent.never-here")
    recipient = room.sit()
    recipient.ack(await recipient.read_messages())
    await room.quiet()
    assert room.relay.get_endpoint("agent.never-here") is None


async def test_confirming_twice_tells_once(room: Room) -> None:
    sender, recipient = room.sit("agent.b"), room.sit()
    await sender.send("agent.a", 1)
    batch = await recipient.read_messages()
    recipient.ack([*batch, *batch])
    recipient.ack(batch)
    assert len(confirmed(await sender.read())) == 1


async def test_confirmations_a_sender_never_read_are_kept_for_it(room: Room) -> None:
    sender, recipient = room.sit("agent.b"), room.sit()
    await recipient.read()
    (answer,) = await sender.send("agent.a", 1)
    recipient.ack(await recipient.read_messages())
    await room.quiet()
    sender.leave()
    assert isinstance(answer, frames.SendResult)
    assert confirmed(await room.sit("agent.b").read()) == [(answer.message_id, False)]


async def test_rules_against_everyone_do_not_hold_up_confirmations(room: Room) -> None:
    room.sit("agent.b").leave()
    room.publish(1)
    recipient = room.sit()
    batch = await recipient.read_messages()
    room.relay.access.add_rule(AccessRule(from_=">", to="agent.b", action="deny", priority=1))
    recipient.ack(batch)
    await room.quiet()
    assert len(confirmed(await room.sit("agent.b").read())) == 1


async def test_a_sender_whose_mailbox_is_full_loses_confirmations_but_not_in_silence(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    room = await house.open(backpressure=BackpressureConfig(max_mailbox_size=5))
    room.sit("agent.b").leave()
    room.publish(1)
    for number in range(5):
        room.publish(number, to="agent.b", sender="agent.c")
    recipient = room.sit()
    with caplog.at_level(logging.WARNING, "waypost.server"):
        recipient.ack(await recipient.read_messages())
    assert "receipts for agent.b are lost" in caplog.text


async def test_a_message_in_the_relays_name_that_holds_no_confirmations_is_just_a_message(
    room: Room,
) -> None:
    room.relay.register_endpoint("agent.a")
    for payload in ("not confirmations", {"recipient": "x", "confirmed": []}):
        room.publish(payload, sender=RELAY)
    found = await room.sit().read_messages()
    assert numbers(found) == [
        "not confirmations",
        {"recipient": "x", "confirmed": []},
    ]
