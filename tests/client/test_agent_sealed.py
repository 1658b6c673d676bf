"""Sealed payloads: hidden from the relay, opened by the recipient, rejected when broken."""

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.harness.listening_relay import listening
from tests.harness.small_order_keys import IDENTITY
from waypost import InvalidMessage
from waypost.client import Agent, Identity, connect
from waypost.client.sealing import seal
from waypost.client.websocket import now_ms
from waypost.wire.sealing import Card, Circumstances

SECRET = {"secret": "the launch is on Tuesday"}


async def test_a_sealed_message_is_opened_for_its_recipient(ann: Agent, bob: Agent) -> None:
    sent = await ann.send("agent.bob", SECRET, seal_to=bob.identity.card)
    message = await bob.receive(60)
    assert (message.payload, message.sealed_by) == (SECRET, ann.identity.public_key)
    assert (message.id, message.problem) == (sent.message_id, None)
    assert "launch" not in str(message.envelope.payload)  # what the relay stored


async def test_a_sealed_request_gets_a_sealed_reply(ann: Agent, bob: Agent) -> None:
    asking = asyncio.create_task(
        ann.request("agent.bob", SECRET, seal_to=bob.identity.card, timeout=60)
    )
    question = await bob.receive(60)
    assert question.payload == SECRET
    await question.reply("understood", seal_to=ann.identity.card)
    reply = await asking
    assert (reply.payload, reply.sealed_by) == ("understood", bob.identity.public_key)


async def test_a_seal_for_another_message_is_reported_and_its_content_withheld(
    ann: Agent, bob: Agent
) -> None:
    under = Circumstances(sealed_at=now_ms())
    replayed = seal(
        SECRET, to=bob.identity.card, by=ann.identity, message_id="another", under=under
    )
    await ann.send("agent.bob", replayed)
    message = await bob.receive(60)
    assert message.payload is None
    assert message.sealed_by is None
    assert message.problem
    await message.ack()


async def test_an_unreadable_seal_is_reported(ann: Agent, bob: Agent) -> None:
    await ann.send("agent.bob", {"waypost": "sealed-1", "content": "garbage"})
    message = await bob.receive(60)
    assert message.payload is None
    assert message.problem


async def test_a_trusted_sender_must_seal_with_the_trusted_key(ann: Agent, bob: Agent) -> None:
    bob.trust(Identity.new("agent.ann").card)
    await ann.send("agent.bob", SECRET, seal_to=bob.identity.card)
    message = await bob.receive(60)
    assert message.payload is None
    assert "another key" in (message.problem or "")
    bob.trust(ann.identity.card)
    await ann.send("agent.bob", SECRET, seal_to=bob.identity.card)
    assert (await bob.receive(60)).payload == SECRET


async def test_a_key_of_small_order_cannot_be_trusted(bob: Agent) -> None:
    with pytest.raises(InvalidMessage, match="small order"):
        bob.trust(Card(subject="agent.ann", public_key=IDENTITY))


async def test_an_unsealed_message_of_a_trusted_sender_is_reported_and_withheld(
    ann: Agent, bob: Agent
) -> None:
    bob.trust(ann.identity.card)
    await ann.send("agent.bob", SECRET)
    message = await bob.receive(60)
    assert message.payload is None
    assert "not sealed, although agent.ann is trusted" in (message.problem or "")
    assert message.sealed_by is None


async def test_a_sealed_reply_keeps_its_reply_address_and_its_parent(
    ann: Agent, bob: Agent
) -> None:
    await ann.send("agent.bob", SECRET, seal_to=bob.identity.card, reply_to="agent.ann")
    question = await bob.receive(60)
    assert (question.payload, question.reply_to) == (SECRET, "agent.ann")
    await question.reply("understood", seal_to=ann.identity.card)
    answer = await ann.receive(60)
    assert (answer.payload, answer.parent) == ("understood", question.id)
    assert answer.sealed_at is not None


async def test_a_message_sealed_to_one_agent_cannot_be_sent_to_another(
    ann: Agent, identities: Callable[[str], Identity]
) -> None:
    with pytest.raises(InvalidMessage, match="which cannot read it"):
        await ann.send("agent.carol", SECRET, seal_to=identities("agent.bob").card)


def holding(directory: Path, text: str) -> list[str]:
    """Return the files that hold `text`, plain or as base64 at any alignment."""
    forms = {text.encode()}
    for before in range(3):
        coded = base64.b64encode(b"x" * before + text.encode())
        forms.add(coded[4:-4].replace(b"+", b"-").replace(b"/", b"_"))
    return sorted(
        path.name
        for path in directory.rglob("*")
        if path.is_file() and any(form in path.read_bytes() for form in forms)
    )


@pytest.mark.parametrize("storage", ["maildir", "journal"])
@pytest.mark.parametrize("size", [1, 400], ids=["small", "in a body file"])
async def test_sealed_content_is_nowhere_on_the_disk_of_the_relay(
    tmp_path: Path, storage: str, size: int
) -> None:
    data = tmp_path / "data"
    bob = Identity.new("agent.bob")
    async with listening(data, storage=storage) as relay:
        async with connect(relay.url, Identity.new("agent.ann")) as ann:
            hidden = {"secret": "the launch is on Tuesday" * size}
            await ann.send("agent.bob", hidden, seal_to=bob.card)
            await ann.send("agent.bob", {"plain": "the picnic is on Sunday" * size})
        await eventually(lambda: holding(data, "the picnic is on Sunday"), "the plain message")
        while_it_runs = holding(data, "the launch is on Tuesday")
        async with connect(relay.url, bob) as reader:
            assert (await reader.receive(60)).payload == hidden
    assert while_it_runs == []
    assert holding(data, "the launch is on Tuesday") == []
    assert holding(data, "the picnic is on Sunday")  # the search itself works
