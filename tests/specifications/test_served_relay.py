"""A relay on a port: statistics, breakers, schemas, signals to patterns, and full mailboxes."""

from typing import Any

import pytest

from tests.specifications.served_relay import ServedRelay, kinds
from waypost import BackpressureConfig, QosConfig

MESSAGE_SCHEMAS = {
    "Performative",
    "SignalType",
    "ChannelType",
    "Budget",
    "Envelope",
    "Attachment",
    "ResponseContext",
    "StandardPayload",
    "Signal",
    "AccessRule",
}
WITHOUT_QUOTAS = QosConfig(enabled=False)
SIGNAL = {
    "type": "typing",
    "state": "active",
    "endpoint_subject": "agent.s",
    "timestamp": "2026-01-01T00:00:00Z",
}


async def operator(relay: ServedRelay, method: str, path: str, **request: Any) -> Any:
    """Return the answer to a request of the operator."""
    answer = await relay.call(method, path, token=relay.operator, **request)
    assert answer.is_success, answer.text
    return answer.json()


async def test_statistics_show_quotas_in_force_and_open_breakers(served: ServedRelay) -> None:
    relay = await served.start()
    for number in range(5):
        await relay.publish("agent.r", number)
    token = await relay.token("agent.r")
    ids = [one["id"] for one in await relay.read("agent.r", token=token)]
    await relay.call("POST", "/v1/inbox/agent.r/nack", token=token, json={"ids": ids})
    stats = await operator(relay, "GET", "/v1/stats")
    assert stats["qos"]["tier1"] == {"maxEnvelopes": 20, "maxBytes": 262_144}
    assert stats["breakers"]["agent.r"]["state"] == "OPEN"
    assert (await relay.publish("agent.r")).json()["reason"] == "circuit_open"
    await operator(relay, "POST", "/v1/breakers/agent.r/reset")
    assert (await relay.publish("agent.r")).status_code == 200


async def test_message_types_and_settings_have_schemas(served: ServedRelay) -> None:
    relay = await served.start()
    document = (await relay.call("GET", "/openapi.json")).json()
    schemas = document["components"]["schemas"]
    assert schemas.keys() >= MESSAGE_SCHEMAS
    body = document["paths"]["/v1/config"]["put"]["requestBody"]["content"]["application/json"]
    settings = schemas[body["schema"]["$ref"].rpartition("/")[2]]["properties"]
    assert {"maxHops", "qos", "reliability", "storage"} <= settings.keys()
    assert settings["maxHops"]["minimum"] == 1


async def test_a_signal_to_a_pattern_reaches_the_connected_agents_that_match(
    served: ServedRelay,
) -> None:
    relay = await served.start()
    sender = await relay.connect("agent.s")
    matching = [await relay.connect(f"agent.team.{name}") for name in ("x", "y")]
    other = await relay.connect("agent.other")
    for agent in (*matching, other):
        await agent.until("live")
    await sender.write({"op": "signal", "subject": "agent.team.*", "signal": SIGNAL})
    for agent in matching:
        assert (await agent.until("signal"))[-1]["signal"]["state"] == "active"
    assert kinds(await other.read_until_idle()) == []


async def test_each_full_recipient_of_a_pattern_is_named(served: ServedRelay) -> None:
    few = BackpressureConfig(max_mailbox_size=1)
    relay = await served.start(qos=WITHOUT_QUOTAS, backpressure=few)
    full = ["agent.team.x", "agent.team.y"]
    for subject in full:
        await relay.store(1, to=subject)
    sender = await relay.connect("agent.s")
    await sender.send("agent.team.*", "for all")
    found = [(await sender.until("queue_full"))[-1] for _ in full]
    assert sorted(one["recipient"] for one in found) == full


@pytest.mark.parametrize("others", [0, 5])
async def test_a_confirmation_reaches_a_sender_whose_mailbox_was_full(
    served: ServedRelay, others: int
) -> None:
    few = BackpressureConfig(max_mailbox_size=5)
    relay = await served.start(qos=WITHOUT_QUOTAS, backpressure=few)
    sender = await relay.connect("agent.s")
    (*_, sent) = await sender.send("agent.r", "hello")
    await sender.disconnect()
    if others:
        await relay.store(others, to="agent.s")
    recipient = await relay.connect("agent.r")
    await recipient.ack(await recipient.until("message"))
    await recipient.until("live")
    sender = await relay.connect("agent.s")
    while (found := await sender.next())["op"] != "delivery_confirm":
        if found["op"] == "message":
            await sender.ack([found])
    assert found["message_id"] == sent["message_id"]
