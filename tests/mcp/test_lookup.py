"""Looking around: who is there, how things stand, what became of a message."""

import asyncio
from collections.abc import Callable
from typing import Any, get_args

from tests.harness.listening_relay import ListeningRelay
from tests.mcp.models import Model
from waypost.mcp.tools.lookup import BECAME
from waypost.wire.events import AnyEvent

Sits = Callable[..., Any]


def names(facts: dict[str, Any]) -> list[str]:
    return [one["subject"] for one in facts["endpoints"]]


async def test_an_agent_sees_those_it_knows_and_learns_who_shows_all(
    ann: Model, bob: Model, relay: ListeningRelay
) -> None:
    await relay.services.relay.publish("agent.hidden", 1, sender="agent.other")
    await ann.send("agent.bob", "hello")
    await bob.read()
    for model in (ann, bob):
        result = await model.call("relay_list_endpoints")
        assert result.structured_content is not None
        assert names(result.structured_content) == ["agent.ann", "agent.bob"]
        assert not result.structured_content["is_complete"]
    assert "--operator-token-file" in await ann.told("relay_list_endpoints")


async def test_an_exact_subject_tells_whether_that_agent_was_ever_here(
    ann: Model, bob: Model
) -> None:
    await bob.told("relay_status")
    assert names(await ann.facts("relay_list_endpoints", pattern="agent.bob")) == ["agent.bob"]
    told = await ann.told("relay_list_endpoints", pattern="agent.zoe")
    assert "agent.zoe has never been at this relay" in told


async def test_the_operator_sees_every_endpoint_page_by_page(
    sits: Sits, bob: Model, operator_token: str
) -> None:
    await bob.told("relay_status")
    async with sits("agent.ann", operator_token=operator_token) as ann:
        await ann.send("agent.carol", "when you come")
        first = await ann.facts("relay_list_endpoints", limit=2)
        assert names(first) == ["agent.ann", "agent.bob"]
        assert first["next"] == "agent.bob"
        second = await ann.facts("relay_list_endpoints", limit=2, after=first["next"])
        assert second["endpoints"] == [{"subject": "agent.carol", "waiting": 1, "connected": False}]
        assert second["is_complete"]


async def test_a_pattern_narrows_the_list(sits: Sits, operator_token: str) -> None:
    async with sits("agent.ann", operator_token=operator_token) as ann:
        await ann.send("agent.team.x", 1)
        await ann.send("agent.other", 1)
        assert names(await ann.facts("relay_list_endpoints", pattern="agent.team.>")) == [
            "agent.team.x"
        ]


async def test_registering_is_the_operators_where_it_is_needed_at_all(
    ann: Model, sits: Sits, operator_token: str
) -> None:
    assert (await ann.facts("relay_register_endpoint", subject="agent.ann"))["has_mailbox"]
    assert not (await ann.facts("relay_register_endpoint", subject="agent.new"))["has_mailbox"]
    told = await ann.rejected("relay_register_endpoint", subject="reports.daily")
    assert "Only the relay's operator" in told
    async with sits("agent.boss", operator_token=operator_token) as boss:
        await boss.told("relay_register_endpoint", subject="reports.daily")
    await ann.send("reports.daily", "a report")


async def test_the_status_tells_what_waits_and_what_is_not_acknowledged(
    ann: Model, bob: Model, relay: ListeningRelay
) -> None:
    sent = await ann.send("agent.bob", "one")
    await bob.read()
    await ann.send("agent.bob", "x" * 1000)
    await bob.has_unread(1)
    facts = await bob.facts("relay_status")
    assert facts["subject"] == "agent.bob"
    assert facts["relay"] == relay.url
    assert facts["connected"]
    assert facts["is_complete"]
    assert facts["unread_messages"] == 1
    assert 1000 < facts["unread_bytes"] < 1400
    assert facts["unacknowledged"] == [sent]
    assert facts["numbers"] is None


async def test_the_operator_sees_the_numbers_of_the_relay(sits: Sits, operator_token: str) -> None:
    async with sits("agent.ann", operator_token=operator_token) as ann:
        await ann.send("agent.bob", "one")
        numbers = (await ann.facts("relay_status"))["numbers"]
        assert numbers["messages"]["pending"] == 1
        assert numbers["connected_agents"] == 1


async def test_a_wrong_operator_token_is_said_to_be_wrong(sits: Sits) -> None:
    async with sits("agent.ann", operator_token="guessed") as ann:
        told = await ann.rejected("relay_list_endpoints")
        assert "rejected this operator's token" in told


async def test_a_story_is_told_to_those_it_concerns(ann: Model, bob: Model, sits: Sits) -> None:
    sent = await ann.send("agent.bob", "read me")
    assert "handed to the recipient" in await told_soon(ann, sent, "handed")
    await bob.read()
    await bob.told("relay_ack", ids=[sent])
    assert "has acknowledged it: done" in await told_soon(ann, sent, "done")
    async with sits("agent.carol") as carol:
        told = await carol.rejected("relay_explain", message_id=sent)
        assert f"tells you of no message {sent}" in told


async def test_a_message_that_was_stopped_tells_why(ann: Model, bob: Model) -> None:
    await ann.send("agent.bob", "hello")
    [(hello, _)] = await bob.read()
    await bob.told("relay_send", payload="hello", in_reply_to=hello)
    [(back, _)] = await ann.read()
    facts = await ann.facts("relay_send", payload="thanks", in_reply_to=back)
    story = await ann.facts("relay_explain", message_id=facts["message_id"])
    assert [one["what"] for one in story["steps"]] == ["rejected"]
    assert "refused" in story["outcome"]["agent.bob"]


def test_every_end_of_a_message_has_its_words() -> None:
    ends = {
        str(kind.__struct_config__.tag)
        for kind in get_args(AnyEvent)
        if {"id", "endpoint"} <= set(kind.__struct_fields__)
    }
    assert ends <= BECAME.keys()


async def told_soon(model: Model, message_id: str, word: str) -> str:
    """A story, once it has got so far."""
    async with asyncio.timeout(5):
        while word not in (told := await model.told("relay_explain", message_id=message_id)):
            pass
    return told
