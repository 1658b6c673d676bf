"""Agents that read batches: one operation for the answers to many sends, and for many receipts."""

from typing import Any

import msgspec
import pytest

from tests.server.conftest import ServeRelay, SocketRelay
from tests.server.sessions.raw_agent import RawAgent
from waypost import BackpressureConfig, QosConfig
from waypost.client import connect as connect_agent
from waypost.client.identity import Identity
from waypost.policy.bounds import frame_max_operations
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL

LIMITLESS = {"qos": QosConfig(enabled=False), "backpressure": BackpressureConfig(enabled=False)}
BOTH = pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])


async def connect(relay: SocketRelay, me: Identity, protocol: str = JSON_PROTOCOL) -> RawAgent:
    """Connect an agent that reads batches."""
    agent = await relay.dial(protocol=protocol)
    challenge = await agent.expect(frames.Challenge)
    assert challenge.batches
    proof = me.prove(challenge.nonce, agent.transport.origin)
    proof.batches = True
    await agent.send_frame(proof)
    await agent.expect(frames.Welcome)
    return agent


def send(
    agent: RawAgent, ref: int, message_id: str | None = None, subject: str = "agent.b"
) -> frames.Send:
    form: Any = msgspec.json if agent.codec.is_text else msgspec.msgpack
    payload = msgspec.Raw(form.encode(ref))
    return frames.Send(ref=ref, subject=subject, payload=payload, message_id=message_id)


async def send_all(agent: RawAgent, count: int) -> None:
    """Send messages m-1, m-2, … to agent.b in frames as large as allowed, and await the answers."""
    sends = [send(agent, ref, f"m-{ref}") for ref in range(1, count + 1)]
    for begin in range(0, count, frame_max_operations):
        await agent.send_frame(*sends[begin : begin + frame_max_operations])
    while (await agent.until(frames.SentMany)).last_ref < count:
        pass


async def ack_all(agent: RawAgent, count: int) -> None:
    """Read messages and acknowledge them all at once."""
    await agent.ack(*[await agent.until(frames.Message) for _ in range(count)])


@BOTH
async def test_sends_that_were_stored_are_answered_together(
    served: SocketRelay, protocol: str
) -> None:
    sender = await connect(served, Identity.new("agent.a"), protocol)
    recipient = await served.connect("agent.b")
    await sender.send_frame(*[send(sender, ref, f"m-{ref}") for ref in range(1, 6)])
    answer = await sender.until(frames.SentMany)
    assert answer == frames.SentMany(ref=1, last_ref=5, delivered_to=1)
    await sender.disconnect()
    await recipient.disconnect()


async def test_an_answer_that_says_more_stands_alone_and_in_order(served: SocketRelay) -> None:
    sender = await connect(served, Identity.new("agent.a"))
    recipient = await served.connect("agent.b")
    await sender.until(frames.Live)
    await sender.send_frame(
        send(sender, 1, "m-1"),
        send(sender, 2, "m-2"),
        send(sender, 3, "m-3", "no subject"),
        send(sender, 4, "m-4"),
        send(sender, 5),
        send(sender, 6, "m-6", "nobody.*"),
        send(sender, 8, "m-8", "nobody.*"),
    )
    answers = [await sender.next() for _ in range(6)]
    assert isinstance(answers[1], frames.Error)
    assert isinstance(answers[3], frames.SendResult)
    assert (answers[1].ref, answers[3].ref) == (3, 5)
    assert [one for one in answers if isinstance(one, frames.SentMany)] == [
        frames.SentMany(ref=1, last_ref=2, delivered_to=1),
        frames.SentMany(ref=4, last_ref=4, delivered_to=1),
        frames.SentMany(ref=6, last_ref=6, delivered_to=0),
        frames.SentMany(ref=8, last_ref=8, delivered_to=0),
    ]
    await sender.disconnect()
    await recipient.disconnect()


@BOTH
async def test_messages_that_were_acknowledged_together_are_confirmed_together(
    served: SocketRelay, protocol: str
) -> None:
    sender = await connect(served, Identity.new("agent.a"), protocol)
    recipient = await served.connect("agent.b")
    await send_all(sender, 3)
    await ack_all(recipient, 3)
    confirm = await sender.until(frames.DeliveryConfirms)
    assert confirm.recipient == "agent.b"
    assert confirm.confirmed == [("m-1", False), ("m-2", False), ("m-3", False)]
    assert confirm.id is not None
    await sender.disconnect()
    await recipient.disconnect()


async def test_confirmations_lost_with_the_connection_arrive_again_until_acknowledged(
    served: SocketRelay,
) -> None:
    me, recipient = Identity.new("agent.a"), await served.connect("agent.b")
    sender = await connect(served, me)
    await send_all(sender, 2)
    await ack_all(recipient, 2)
    lost = await sender.until(frames.DeliveryConfirms)
    await sender.disconnect()
    sender = await connect(served, me)
    again = await sender.until(frames.DeliveryConfirms)
    assert again.confirmed == lost.confirmed
    assert again.id is not None
    await sender.send_frame(frames.Ack(ids=[again.id]))
    await sender.until(frames.Live)
    await sender.disconnect()
    assert served.waiting("agent.a") == 0
    await recipient.disconnect()


async def test_an_operation_has_as_many_confirmations_as_a_frame_may_have_operations(
    serve_relay: ServeRelay,
) -> None:
    served = await serve_relay(**LIMITLESS)
    me, recipient = Identity.new("agent.a"), await served.connect("agent.b", receive="pull")
    sender = await connect(served, me)
    count = frame_max_operations + 1
    await send_all(sender, count)
    await recipient.send_frame(frames.Fetch(ref=1, limit=count))
    fetched = await recipient.until(frames.FetchedMessages)
    await recipient.ack(*fetched.messages)
    first = await sender.until(frames.DeliveryConfirms)
    last = await sender.expect(frames.DeliveryConfirms)
    assert [len(first.confirmed), len(last.confirmed)] == [frame_max_operations, 1]
    assert (first.id is None, last.id is None) == (True, False)
    await sender.disconnect()
    await recipient.disconnect()


async def test_agents_send_many_and_get_a_result_and_a_confirmation_of_each(
    serve_relay: ServeRelay,
) -> None:
    served = await serve_relay(**LIMITLESS)
    async with (
        connect_agent(served.url, Identity.new("agent.a")) as sender,
        connect_agent(served.url, Identity.new("agent.b")) as recipient,
    ):
        wanted = [{"subject": "agent.b", "payload": number} for number in range(300)]
        results = await sender.send_many(wanted)
        received = []
        for _ in wanted:
            received.append(await recipient.receive(timeout=60))
            await received[-1].ack()
        assert [one.payload for one in received] == list(range(300))
        assert [one.message_id for one in results] == [one.id for one in received]
        assert {one.delivered_to for one in results} == {1}
        for one in results:
            assert (await sender.delivered(one.message_id)).recipient == "agent.b"
