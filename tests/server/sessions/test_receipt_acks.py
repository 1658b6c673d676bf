"""Confirmations of connected senders: not lost with the connection, through a socket."""

from collections.abc import Callable

from tests.server.conftest import SocketRelay
from tests.server.sessions.raw_agent import RawAgent
from waypost.client.identity import Identity
from waypost.policy.bounds import live_receipts_max_operations
from waypost.wire import frames

Identities = Callable[[str], Identity]


async def connect(relay: SocketRelay, identity: Identity) -> tuple[RawAgent, int]:
    """Connect; return the agent and how many messages are stored for it."""
    agent = await relay.dial()
    await agent.authenticate(identity)
    return agent, (await agent.expect(frames.QueueStatus)).pending


async def confirmed(relay: SocketRelay, sender: RawAgent, recipient: RawAgent) -> str:
    """Send a message to agent.b, which acknowledges it; return its id."""
    answer = await sender.send("agent.b", 1)
    assert isinstance(answer, frames.SendResult)
    await recipient.ack(await recipient.until(frames.Message))
    return answer.message_id


async def test_a_confirmation_lost_with_the_connection_arrives_again(
    served: SocketRelay, identities: Identities
) -> None:
    sender, _ = await connect(served, identities("agent.a"))
    recipient, _ = await connect(served, identities("agent.b"))
    sent = await confirmed(served, sender, recipient)
    lost = await sender.until(frames.DeliveryConfirm)
    await sender.disconnect()  # the agent never processed it
    sender, pending = await connect(served, identities("agent.a"))
    again = await sender.expect(frames.DeliveryConfirm)
    assert (again.message_id, again.recipient, again.was_stored) == (sent, "agent.b", False)
    assert (pending, lost.message_id) == (1, sent)
    await sender.disconnect()
    await recipient.disconnect()


async def test_an_acknowledged_confirmation_does_not_arrive_again(
    served: SocketRelay, identities: Identities
) -> None:
    sender, _ = await connect(served, identities("agent.a"))
    recipient, _ = await connect(served, identities("agent.b"))
    await confirmed(served, sender, recipient)
    confirm = await sender.until(frames.DeliveryConfirm)
    assert confirm.id is not None
    await sender.send_frame(frames.Ack(ids=[confirm.id]))
    await sender.send("agent.c", "so that the ack was read")
    await sender.disconnect()
    sender, pending = await connect(served, identities("agent.a"))
    assert pending == 0
    await sender.disconnect()
    await recipient.disconnect()


async def test_confirmations_that_are_not_acknowledged_are_stored_beyond_a_bound(
    served: SocketRelay, identities: Identities
) -> None:
    sender, _ = await connect(served, identities("agent.a"))
    recipient, _ = await connect(served, identities("agent.b"))
    for _ in range(live_receipts_max_operations):
        await confirmed(served, sender, recipient)
        await sender.until(frames.DeliveryConfirm)
    assert served.waiting("agent.a") == 0
    sent = await confirmed(served, sender, recipient)
    assert (await sender.until(frames.DeliveryConfirm)).message_id == sent
    assert served.waiting("agent.a") == 1
    await sender.disconnect()
    await recipient.disconnect()
