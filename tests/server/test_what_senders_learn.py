"""What the sender of a message to a pattern learns about its recipients, through a socket."""

import json

import httpx
import pytest

from tests.server.conftest import ServeRelay, SocketRelay
from tests.server.sessions.raw_agent import RawAgent
from waypost import AccessRule, BackpressureConfig, QosConfig
from waypost.client.identity import Identity
from waypost.wire import frames


@pytest.fixture
async def relay(serve_relay: ServeRelay) -> SocketRelay:
    """A relay with three mailboxes: two full, one empty."""
    relay = await serve_relay(
        backpressure=BackpressureConfig(max_mailbox_size=1), qos=QosConfig(enabled=False)
    )
    for name in ("one", "two", "three"):
        relay.context.relay.register_endpoint(f"team.secret-{name}")
    for name in ("one", "two"):
        await relay.context.relay.publish(f"team.secret-{name}", 1, sender="agent.other")
    return relay


async def published(agent: RawAgent) -> frames.SendResult:
    answer = await agent.send("team.*", 1)
    assert isinstance(answer, frames.SendResult)
    return answer


async def test_a_publish_to_a_pattern_is_answered_with_totals(relay: SocketRelay) -> None:
    agent = await relay.connect("agent.a")
    answer = await published(agent)
    assert answer.delivered_to == 1
    assert [(one.endpoint_hash, one.reason) for one in answer.rejected] == [
        ("", "backpressure")
    ] * 2
    assert answer.mailbox_pressure == {}
    await agent.disconnect()


async def test_over_http_it_is_the_same(relay: SocketRelay) -> None:
    agent = await relay.dial()
    welcome = await agent.authenticate(Identity.new("agent.a"))
    async with httpx.AsyncClient(base_url=relay.url, trust_env=False) as client:
        headers = {"Authorization": f"Bearer {welcome.token}"}
        body = {"messages": [{"subject": "team.*", "payload": 1}]}
        batch = await client.post("/v1/messages", json=body, headers=headers)
        [result] = batch.json()["results"]
        url = f"/v1/messages/{result['message_id']}"
        history = await client.get(url, headers=headers)
    assert [one["endpoint_hash"] for one in result["rejected"]] == ["", ""]
    steps = history.json()["steps"]
    assert [(one["kind"], one["endpoint"]) for one in steps] == [
        ("rejected", "team.*"),
        ("rejected", "team.*"),
        ("accepted", "team.*"),
    ]
    assert "secret" not in json.dumps(result) + history.text
    await agent.disconnect()


async def test_a_sender_sees_which_recipient_it_named(relay: SocketRelay) -> None:
    agent = await relay.connect("agent.a")
    answer = await agent.send("team.secret-one", 1)
    assert isinstance(answer, frames.SendResult)
    assert answer.rejected[0].endpoint_hash != ""
    await agent.disconnect()


async def test_each_full_recipient_of_a_pattern_is_named(relay: SocketRelay) -> None:
    agent = await relay.connect("agent.a")
    answer = await published(agent)
    full = [await agent.expect(frames.QueueFull) for _ in range(2)]
    assert [one.recipient for one in full] == ["team.secret-one", "team.secret-two"]
    assert {one.message_id for one in full} == {answer.message_id}
    assert {one.ref for one in full} == {answer.ref}
    await agent.disconnect()


async def test_a_full_recipient_that_access_rules_hide_is_not_named(relay: SocketRelay) -> None:
    rule = AccessRule(from_="agent.a", to="team.secret-two", action="deny", priority=1)
    relay.context.relay.access.add_rule(rule)
    agent = await relay.connect("agent.a")
    await published(agent)
    assert (await agent.expect(frames.QueueFull)).recipient == "team.secret-one"
    await agent.send("team.secret-three", 2)
    await agent.disconnect()
