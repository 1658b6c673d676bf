"""Parents and budgets that agents claim, over sockets: the relay uses its own records."""

from typing import Any

from tests.server.conftest import ServeRelay, SocketRelay
from tests.server.sessions.raw_agent import RawAgent
from waypost import AccessRule
from waypost.client.identity import Identity
from waypost.policy.budgets import Budget
from waypost.wire import frames
from waypost.wire.frames import Parent

FAR_MS = 1 << 52


def claimed(message: frames.Message | str, **fields: Any) -> Parent:
    """Return a parent with the largest budget that an agent could claim, changed by `fields`."""
    message_id = message if isinstance(message, str) else message.envelope.id
    given = {"ttl": FAR_MS, "max_hops": 99, "call_budget_remaining": 99, **fields}
    return Parent(id=message_id, budget=Budget(**given))


async def three(relay: SocketRelay) -> list[RawAgent]:
    return [await relay.connect(f"agent.{name}") for name in ("mallory", "victim", "helper")]


async def delivered(agent: RawAgent) -> frames.Message:
    return await agent.until(frames.Message)


async def test_ancestors_in_a_requested_budget_are_ignored(served: SocketRelay) -> None:
    mallory, victim, helper = await three(served)
    await mallory.send("agent.victim", 1, budget={"ancestor_chain": ["agent.helper"]})
    message = await delivered(victim)
    assert message.envelope.budget.ancestor_chain == ("agent.victim",)
    parent = Parent(id=message.envelope.id, budget=message.envelope.budget)
    answer = await victim.send("agent.helper", 2, parent=parent)
    assert isinstance(answer, frames.SendResult)
    assert answer.delivered_to == 1
    assert (await delivered(helper)).parent == message.envelope.id


async def test_a_parent_that_was_not_delivered_to_the_sender_is_ignored(
    served: SocketRelay,
) -> None:
    mallory, victim, helper = await three(served)
    await victim.send("agent.helper", "private")
    secret = await delivered(helper)
    for parent in ("never-was", secret):
        await mallory.send(
            "agent.victim", 1, parent=claimed(parent, ancestor_chain=("agent.helper",), max_hops=1)
        )
        message = await delivered(victim)
        assert message.parent is None
        assert message.envelope.budget.ancestor_chain == ("agent.victim",)
        assert message.envelope.budget.max_hops == 5


async def test_the_budget_of_a_parent_is_the_one_that_the_relay_recorded(
    served: SocketRelay,
) -> None:
    mallory, victim, helper = await three(served)
    await victim.send("agent.mallory", 1, budget={"call_budget_remaining": 2})
    message = await delivered(mallory)
    await mallory.send("agent.helper", 2, parent=claimed(message))
    budget = (await delivered(helper)).envelope.budget
    assert budget.ancestor_chain == ("agent.mallory", "agent.helper")
    assert (budget.hop_count, budget.call_budget_remaining) == (2, 0)
    again = await mallory.send("agent.mallory", 3, parent=claimed(message))
    assert isinstance(again, frames.SendResult)
    assert [one.reason for one in again.rejected] == ["budget_exceeded"]


async def test_a_message_remains_a_parent_after_its_acknowledgement(served: SocketRelay) -> None:
    mallory, victim, helper = await three(served)
    await mallory.send("agent.victim", 1)
    message = await delivered(victim)
    await victim.ack(message)
    await victim.send("agent.helper", 2, parent=claimed(message))
    follow_up = await delivered(helper)
    assert follow_up.parent == message.envelope.id
    assert follow_up.envelope.budget.ancestor_chain == ("agent.victim", "agent.helper")


async def test_a_message_remains_a_parent_after_a_restart_of_the_relay(
    serve_relay: ServeRelay,
) -> None:
    identity, other = Identity.new("agent.victim"), Identity.new("agent.helper")
    relay = await serve_relay()
    victim = await relay.dial()
    await victim.authenticate(identity)
    mallory = await relay.connect("agent.mallory")
    await mallory.send("agent.victim", 1)
    message = await delivered(victim)
    await victim.ack(message)
    await victim.send("agent.mallory", "after the ack")
    relay = await serve_relay()
    victim, helper = await relay.dial(), await relay.dial()
    await victim.authenticate(identity)
    await helper.authenticate(other)
    await victim.send("agent.helper", 2, parent=claimed(message))
    follow_up = await delivered(helper)
    assert follow_up.parent == message.envelope.id
    assert follow_up.envelope.budget.ancestor_chain == ("agent.victim", "agent.helper")


async def test_a_reply_address_that_the_sender_may_not_write_to_is_denied(
    served: SocketRelay,
) -> None:
    mallory, victim, _ = await three(served)
    served.context.relay.access.add_rule(AccessRule("agent.mallory", "agent.helper", "deny"))
    answer = await mallory.send("agent.victim", "answer there", reply_to="agent.helper")
    assert isinstance(answer, frames.Error)
    assert answer.reason == "access_denied"
    assert answer.error == (
        "access rules do not let agent.mallory name agent.helper as the reply address"
    )
    for allowed in ("agent.mallory", "agent.other"):
        answer = await mallory.send("agent.victim", 1, reply_to=allowed)
        assert isinstance(answer, frames.SendResult)
        assert (await delivered(victim)).envelope.reply_to == allowed
