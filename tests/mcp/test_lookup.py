"""Lookups: endpoints, status, message history."""

import asyncio
from collections.abc import Callable
from typing import Any, get_args

from tests.harness.listening_relay import ListeningRelay
from tests.mcp.models import Model
from waypost.mcp.tools.lookup import OUTCOMES
from waypost.wire.events import AnyEvent

NewModel = Callable[..., Any]


def names(facts: dict[str, Any]) -> list[str]:
    return [one["subject"] for one in facts["endpoints"]]


async def test_an_agent_sees_its_contacts_and_how_to_see_all(
    ann: Model, bob: Model, relay: ListeningRelay
) -> None:
    await relay.context.relay.publish("agent.hidden", 1, sender="agent.other")
    await ann.send("agent.bob", "hello")
    await bob.read()
    for model in (ann, bob):
        result = await model.call("relay_list_endpoints")
        assert result.structured_content is not None
        assert names(result.structured_content) == ["agent.ann", "agent.bob"]
        assert not result.structured_content["is_complete"]
    assert "--operator-token-file" in await ann.call_ok("relay_list_endpoints")


async def test_an_exact_subject_shows_whether_that_agent_ever_connected(
    ann: Model, bob: Model
) -> None:
    await bob.call_ok("relay_status")
    assert names(await ann.facts("relay_list_endpoints", pattern="agent.bob")) == ["agent.bob"]
    output = await ann.call_ok("relay_list_endpoints", pattern="agent.zoe")
    assert "agent.zoe has never connected to this relay" in output


async def test_the_operator_sees_every_endpoint_page_by_page(
    new_model: NewModel, bob: Model, operator_token: str
) -> None:
    await bob.call_ok("relay_status")
    async with new_model("agent.ann", operator_token=operator_token) as ann:
        await ann.send("agent.carol", "when you come")
        first = await ann.facts("relay_list_endpoints", limit=2)
        assert names(first) == ["agent.ann", "agent.bob"]
        assert first["next"] == "agent.bob"
        second = await ann.facts("relay_list_endpoints", limit=2, after=first["next"])
        assert second["endpoints"] == [{"subject": "agent.carol", "waiting": 1, "connected": False}]
        assert second["is_complete"]


async def test_a_pattern_narrows_the_list(new_model: NewModel, operator_token: str) -> None:
    async with new_model("agent.ann", operator_token=operator_token) as ann:
        await ann.send("agent.team.x", 1)
        await ann.send("agent.other", 1)
        assert names(await ann.facts("relay_list_endpoints", pattern="agent.team.>")) == [
            "agent.team.x"
        ]


async def test_only_the_operator_can_register_other_subjects(
    ann: Model, new_model: NewModel, operator_token: str
) -> None:
    assert (await ann.facts("relay_register_endpoint", subject="agent.ann"))["has_mailbox"]
    assert not (await ann.facts("relay_register_endpoint", subject="agent.new"))["has_mailbox"]
    output = await ann.call_error("relay_register_endpoint", subject="reports.daily")
    assert "Only the relay's operator" in output
    async with new_model("agent.boss", operator_token=operator_token) as boss:
        await boss.call_ok("relay_register_endpoint", subject="reports.daily")
    await ann.send("reports.daily", "a report")


async def test_the_status_shows_unread_and_unacknowledged_messages(
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


async def test_the_operator_sees_the_statistics_of_the_relay(
    new_model: NewModel, operator_token: str
) -> None:
    async with new_model("agent.ann", operator_token=operator_token) as ann:
        await ann.send("agent.bob", "one")
        numbers = (await ann.facts("relay_status"))["numbers"]
        assert numbers["messages"]["pending"] == 1
        assert numbers["connected_agents"] == 1


async def test_a_wrong_operator_token_is_reported(new_model: NewModel) -> None:
    async with new_model("agent.ann", operator_token="guessed") as ann:
        output = await ann.call_error("relay_list_endpoints")
        assert "rejected this operator's token" in output


async def test_a_history_is_shown_to_sender_and_recipient_only(
    ann: Model, bob: Model, new_model: NewModel
) -> None:
    sent = await ann.send("agent.bob", "read me")
    assert "delivered to the recipient" in await wait_for_history(ann, sent, "delivered")
    await bob.read()
    await bob.call_ok("relay_ack", ids=[sent])
    assert "has acknowledged it: done" in await wait_for_history(ann, sent, "done")
    async with new_model("agent.carol") as carol:
        output = await carol.call_error("relay_explain", message_id=sent)
        assert f"has no history of message {sent}" in output


async def test_the_history_of_a_rejected_message_has_the_reason(ann: Model, bob: Model) -> None:
    await bob.send("agent.ann", "hello")
    [(hello, _)] = await ann.read()
    ring = {"subject": "agent.ann", "payload": "to myself", "in_reply_to": hello}
    facts = await ann.facts("relay_send", **ring)
    history = await ann.facts("relay_explain", message_id=facts["message_id"])
    assert [one["what"] for one in history["steps"]] == ["rejected"]
    assert "rejected" in history["outcome"]["agent.ann"]


def test_every_final_event_of_a_message_has_an_outcome_text() -> None:
    ends = {
        str(kind.__struct_config__.tag)
        for kind in get_args(AnyEvent)
        if {"id", "endpoint"} <= set(kind.__struct_fields__)
    }
    assert ends <= OUTCOMES.keys()


async def wait_for_history(model: Model, message_id: str, word: str) -> str:
    """Return the history of a message once it contains `word`."""
    async with asyncio.timeout(60):
        while word not in (output := await model.call_ok("relay_explain", message_id=message_id)):
            pass
    return output
