"""Messages that a model sends to be delivered later."""

from datetime import datetime

from tests.mcp.models import Model


async def test_a_model_sends_a_message_to_be_delivered_later(ann: Model, bob: Model) -> None:
    text = await ann.call_ok(
        "relay_send", subject="agent.bob", payload="later", deliver_in_seconds=0.3
    )
    assert "It is delivered in 0.3 seconds; until then, relay_scheduled can cancel it." in text
    assert [text for _, text in await bob.read()] == ["later"]


async def test_a_model_lists_and_cancels_its_scheduled_messages(ann: Model, bob: Model) -> None:
    late = await ann.send("agent.bob", "late", deliver_in_seconds=120)
    soon = await ann.send("agent.bob", "soon", deliver_in_seconds=60, expires_in_seconds=5)
    facts = await ann.facts("relay_scheduled")
    assert [one["message_id"] for one in facts["messages"]] == [soon, late]
    assert {one["recipient"] for one in facts["messages"]} == {"agent.bob"}
    assert datetime.fromisoformat(facts["messages"][0]["deliver_at"])
    assert "2 scheduled messages." in await ann.call_ok("relay_scheduled")
    explained = await ann.facts("relay_explain", message_id=soon)
    assert explained["outcome"] == {"agent.bob": "It is scheduled, and not delivered yet."}
    other = await bob.facts("relay_scheduled", cancel=[soon])
    assert (other["messages"], other["not_cancelled"]) == ([], [soon])
    done = await ann.facts("relay_scheduled", cancel=[soon, "unknown"])
    assert (done["cancelled"], done["not_cancelled"]) == ([soon], ["unknown"])
    assert [one["message_id"] for one in done["messages"]] == [late]


async def test_a_delay_beyond_the_relays_limit_is_explained(ann: Model) -> None:
    text = await ann.call_error(
        "relay_send", subject="agent.bob", payload=1, deliver_in_seconds=8 * 86_400
    )
    assert "at most 604,800 seconds ahead" in text
