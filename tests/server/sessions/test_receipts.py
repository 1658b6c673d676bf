"""Delivery receipts for connected and disconnected senders."""

import logging

import pytest

from tests.server.sessions.memory_server import MemoryServer, ServerLauncher, kinds, numbers
from waypost import AccessRule, BackpressureConfig
from waypost.policy.reserved_names import ANONYMOUS, RELAY
from waypost.policy.tiers import TierLimits
from waypost.wire import frames
from waypost.wire.frames import FromRelay


def confirmed(operations: list[FromRelay]) -> list[tuple[str, bool]]:
    """Return the confirmed messages, and whether each was stored."""
    return [
        (one.message_id, one.was_stored)
        for one in operations
        if isinstance(one, frames.DeliveryConfirm)
    ]


async def test_a_connected_sender_gets_a_receipt_for_a_live_message(server: MemoryServer) -> None:
    sender, recipient = server.connect("agent.b"), server.connect()
    await recipient.read()
    (answer,) = await sender.send("agent.a", 1)
    assert isinstance(answer, frames.SendResult)
    (message,) = await recipient.read_messages()
    assert not message.was_stored
    recipient.ack([message])
    (receipt,) = await sender.read()
    assert isinstance(receipt, frames.DeliveryConfirm)
    assert (receipt.message_id, receipt.recipient) == (answer.message_id, "agent.a")
    assert not receipt.was_stored


async def test_a_receipt_marks_a_message_that_was_stored(server: MemoryServer) -> None:
    sender = server.connect("agent.b")
    (answer,) = await sender.send("agent.a", 1)
    assert isinstance(answer, frames.SendResult)
    recipient = server.connect()
    (message,) = await recipient.read_messages()
    assert message.was_stored
    recipient.ack([message])
    assert confirmed(await sender.read()) == [(answer.message_id, True)]


async def test_a_message_sent_during_the_flush_counts_as_stored(server: MemoryServer) -> None:
    server.store(1)
    await server.wait_until_idle()
    recipient = server.connect()
    (first,) = await recipient.read_messages()
    server.publish("later")
    await server.wait_until_idle()
    recipient.ack([first])
    (second,) = await recipient.read_messages()
    assert second.was_stored


async def test_an_unconfirmed_live_message_is_redelivered_as_stored(
    server: MemoryServer,
) -> None:
    sender, recipient = server.connect("agent.b"), server.connect()
    await recipient.read()
    await sender.send("agent.a", 1)
    (message,) = await recipient.read_messages()
    recipient.disconnect()
    recipient = server.connect()
    (again,) = await recipient.read_messages()
    assert (again.envelope.id, message.was_stored, again.was_stored) == (
        message.envelope.id,
        False,
        True,
    )
    recipient.ack([again])
    assert confirmed(await sender.read()) == [(message.envelope.id, True)]


async def test_a_disconnected_sender_gets_its_receipts_on_connect(server: MemoryServer) -> None:
    sender = server.connect("agent.b")
    (answer,) = await sender.send("agent.a", 1)
    sender.disconnect()
    recipient = server.connect()
    recipient.ack(await recipient.read_messages())
    await server.wait_until_idle()
    status, kept = await server.connect("agent.b").read()
    assert status == frames.QueueStatus(pending=1)
    assert isinstance(answer, frames.SendResult)
    assert isinstance(kept, frames.DeliveryConfirm)
    assert (kept.message_id, kept.recipient, kept.was_stored) == (
        answer.message_id,
        "agent.a",
        True,
    )


async def test_stored_receipts_are_redelivered_until_confirmed(
    server: MemoryServer,
) -> None:
    server.connect("agent.b").disconnect()
    server.publish(1)
    recipient = server.connect()
    recipient.ack(await recipient.read_messages())
    for _ in range(2):
        sender = server.connect("agent.b")
        _, kept = await sender.read()
        sender.disconnect()
    assert isinstance(kept, frames.DeliveryConfirm)
    assert kept.id is not None
    sender = server.connect("agent.b")
    await sender.read()
    sender.send_frame(frames.Ack(ids=[kept.id]))
    assert await sender.read() == [frames.Live()]
    sender.disconnect()
    assert kinds(await server.connect("agent.b").read()) == ["QueueStatus", "Live"]


async def test_stored_receipts_survive_a_restart(launcher: ServerLauncher) -> None:
    server = await launcher.open()
    server.connect("agent.b").disconnect()
    result = server.publish(1)
    recipient = server.connect()
    recipient.ack(await recipient.read_messages())
    await server.wait_until_idle()
    server = await launcher.open()
    assert confirmed(await server.connect("agent.b").read()) == [(result.message_id, True)]


async def test_receipts_have_no_receipts(server: MemoryServer) -> None:
    server.connect("agent.b").disconnect()
    server.publish(1)
    recipient = server.connect()
    recipient.ack(await recipient.read_messages())
    sender = server.connect("agent.b")
    _, kept = await sender.read()
    assert isinstance(kept, frames.DeliveryConfirm)
    assert kept.id is not None
    sender.send_frame(frames.Ack(ids=[kept.id]))
    await sender.read()
    assert await recipient.read() == [frames.Live()]
    assert server.relay.metrics().total_messages == 0
    assert RELAY not in {one.subject for one in server.relay.list_endpoints()}


async def test_many_confirmations_at_once_are_stored_as_one_receipt(server: MemoryServer) -> None:
    server.connect("agent.b").disconnect()
    sent = [server.publish(number).message_id for number in range(20)]
    recipient = server.connect()
    recipient.ack(await recipient.read_messages())
    status, *kept = await server.connect("agent.b").read()
    assert status == frames.QueueStatus(pending=1)
    assert confirmed(kept) == [(one, True) for one in sent]
    ids = [one.id for one in kept if isinstance(one, frames.DeliveryConfirm)]
    assert ids[:-1] == [None] * 19, "one ack for all: the last has the id"
    assert ids[-1] is not None


async def test_with_a_small_payload_limit_receipts_are_split(
    launcher: ServerLauncher,
) -> None:
    server = await launcher.open(max_payload_bytes=500)
    server.connect("agent.b").disconnect()
    sent = [server.publish(number).message_id for number in range(20)]
    recipient = server.connect()
    recipient.ack(await recipient.read_messages())
    found: list[tuple[str, bool]] = []
    sender = server.connect("agent.b")
    while batch := [one for one in await sender.read() if isinstance(one, frames.DeliveryConfirm)]:
        found += confirmed(list(batch))
        sender.send_frame(frames.Ack(ids=[one.id for one in batch if one.id is not None]))
    assert found == [(one, True) for one in sent]


async def test_each_recipient_of_a_broadcast_confirms_for_itself(server: MemoryServer) -> None:
    sender = server.connect("agent.b")
    recipients = {name: server.connect(name) for name in ("agent.team.x", "agent.team.y")}
    (answer,) = await sender.send("agent.team.*", "all")
    assert isinstance(answer, frames.SendResult)
    for agent in recipients.values():
        agent.ack(await agent.read_messages())
    received = await sender.read()
    assert {one.recipient for one in received if isinstance(one, frames.DeliveryConfirm)} == set(
        recipients
    )


@pytest.mark.parametrize("name", [ANONYMOUS, RELAY])
async def test_reserved_senders_get_no_receipts(server: MemoryServer, name: str) -> None:
    server.relay.register_endpoint(name)
    server.publish(1, sender=name)
    recipient = server.connect()
    recipient.ack(await recipient.read_messages())
    await server.wait_until_idle()
    assert server.relay.metrics().total_messages == 0


async def test_a_sender_without_a_mailbox_gets_no_receipt(server: MemoryServer) -> None:
    server.publish(1, sender="agent.never-here")
    recipient = server.connect()
    recipient.ack(await recipient.read_messages())
    await server.wait_until_idle()
    assert server.relay.get_endpoint("agent.never-here") is None


async def test_confirming_twice_creates_one_receipt(server: MemoryServer) -> None:
    sender, recipient = server.connect("agent.b"), server.connect()
    await sender.send("agent.a", 1)
    batch = await recipient.read_messages()
    recipient.ack([*batch, *batch])
    recipient.ack(batch)
    assert len(confirmed(await sender.read())) == 1


async def test_receipts_a_sender_never_read_are_stored_for_it(server: MemoryServer) -> None:
    sender, recipient = server.connect("agent.b"), server.connect()
    await recipient.read()
    (answer,) = await sender.send("agent.a", 1)
    recipient.ack(await recipient.read_messages())
    await server.wait_until_idle()
    sender.disconnect()
    assert isinstance(answer, frames.SendResult)
    assert confirmed(await server.connect("agent.b").read()) == [(answer.message_id, False)]


async def test_access_rules_do_not_block_receipts(server: MemoryServer) -> None:
    server.connect("agent.b").disconnect()
    server.publish(1)
    recipient = server.connect()
    batch = await recipient.read_messages()
    server.relay.access.add_rule(AccessRule(from_=">", to="agent.b", action="deny", priority=1))
    recipient.ack(batch)
    await server.wait_until_idle()
    assert len(confirmed(await server.connect("agent.b").read())) == 1


async def test_a_full_mailbox_has_room_for_receipts_up_to_a_bound(
    launcher: ServerLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    server = await launcher.open(
        backpressure=BackpressureConfig(max_mailbox_size=5),
        relay_messages=TierLimits(2, 1 << 20),
    )
    server.connect("agent.b").disconnect()
    for number in range(5):
        assert server.publish(number, to="agent.b", sender="agent.c").delivered_to == 1
    recipient = server.connect()
    sent = []
    with caplog.at_level(logging.WARNING, "waypost.server"):
        for number in range(3):
            sent.append(server.publish(number).message_id)
            assert "are lost" not in caplog.text
            recipient.ack(await recipient.read_messages())
    assert "receipts for agent.b are lost: backpressure: 2 messages of the relay" in caplog.text
    assert server.publish(6, to="agent.b", sender="agent.c").rejected, "it is as full as before"
    received = await server.connect("agent.b").read()
    assert [one for one, _ in confirmed(received)] == sent[:2]


async def test_a_message_in_the_relays_name_that_is_no_receipt_is_delivered(
    server: MemoryServer,
) -> None:
    server.relay.register_endpoint("agent.a")
    for payload in ("not confirmations", {"recipient": "x", "confirmed": []}):
        server.publish(payload, sender=RELAY)
    found = await server.connect().read_messages()
    assert numbers(found) == [
        "not confirmations",
        {"recipient": "x", "confirmed": []},
    ]
