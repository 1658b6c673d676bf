"""Sealed payloads: the relay sees none of it, the recipient all of it, and nobody a broken one."""

import asyncio
from collections.abc import Callable

import pytest

from waypost import InvalidMessage
from waypost.client import Agent, Identity
from waypost.client.sealing import seal

SECRET = {"secret": "the launch is on Tuesday"}


async def test_a_sealed_message_is_opened_for_its_recipient(ann: Agent, bob: Agent) -> None:
    sent = await ann.send("agent.bob", SECRET, seal_to=bob.identity.card)
    message = await bob.receive(5)
    assert (message.payload, message.sealed_by) == (SECRET, ann.identity.public_key)
    assert (message.id, message.problem) == (sent.message_id, None)
    assert "launch" not in str(message.envelope.payload)  # which is what the relay saw


async def test_a_sealed_request_gets_a_sealed_reply(ann: Agent, bob: Agent) -> None:
    asking = asyncio.create_task(
        ann.request("agent.bob", SECRET, seal_to=bob.identity.card, timeout=5)
    )
    question = await bob.receive(5)
    assert question.payload == SECRET
    await question.reply("understood", seal_to=ann.identity.card)
    reply = await asking
    assert (reply.payload, reply.sealed_by) == ("understood", bob.identity.public_key)


async def test_a_seal_for_another_message_is_a_problem_and_never_content(
    ann: Agent, bob: Agent
) -> None:
    replayed = seal(SECRET, to=bob.identity.card, by=ann.identity, message_id="another")
    await ann.send("agent.bob", replayed)
    message = await bob.receive(5)
    assert message.payload is None
    assert message.sealed_by is None
    assert message.problem
    await message.ack()


async def test_a_seal_that_nobody_can_read_is_a_problem(ann: Agent, bob: Agent) -> None:
    await ann.send("agent.bob", {"waypost": "sealed-1", "content": "garbage"})
    message = await bob.receive(5)
    assert message.payload is None
    assert message.problem


async def test_a_trusted_sender_must_seal_with_the_key_that_is_trusted(
    ann: Agent, bob: Agent
) -> None:
    bob.trust(Identity.new("agent.ann").card)
    await ann.send("agent.bob", SECRET, seal_to=bob.identity.card)
    message = await bob.receive(5)
    assert message.payload is None
    assert "another key" in (message.problem or "")
    bob.trust(ann.identity.card)
    await ann.send("agent.bob", SECRET, seal_to=bob.identity.card)
    assert (await bob.receive(5)).payload == SECRET


async def test_a_message_sealed_to_one_cannot_be_sent_to_another(
    ann: Agent, identities: Callable[[str], Identity]
) -> None:
    with pytest.raises(InvalidMessage, match="nobody could read it"):
        await ann.send("agent.carol", SECRET, seal_to=identities("agent.bob").card)
