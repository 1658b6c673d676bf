"""Rejections by the relay come back as instructions."""

import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.harness.listening_relay import ListeningRelay
from tests.mcp.models import Model
from waypost import AccessRule, BackpressureConfig, QosConfig, RateLimitConfig
from waypost.client import Identity, connect
from waypost.policy.tiers import TierLimits

NewModel = Callable[..., Any]


async def with_settings(relay: ListeningRelay, **fields: Any) -> None:
    await relay.stop()
    relay.settings = msgspec.structs.replace(relay.settings, **fields)
    await relay.start()


async def test_a_rate_limited_send_names_the_seconds_to_wait(
    relay: ListeningRelay, new_model: NewModel
) -> None:
    await with_settings(relay, rate_limit=RateLimitConfig(max_per_window=2, window_secs=60))
    async with new_model("agent.ann") as ann:
        await ann.send("agent.bob", 1)
        await ann.send("agent.bob", 2)
        result = await ann.call("relay_send", subject="agent.bob", payload=3)
        assert result.is_error
        assert result.structured_content is not None
        wait = result.structured_content["retry_after_seconds"]
        assert 50 < wait <= 60
        assert f"You send too fast. Wait {wait} seconds" in result.structured_content["what_to_do"]
        assert result.structured_content["rejected"][0]["reason"] == "rate_limited"


async def test_a_full_mailbox_instructs_the_model_not_to_send_again_now(
    relay: ListeningRelay, new_model: NewModel
) -> None:
    await with_settings(relay, backpressure=BackpressureConfig(max_mailbox_size=1))
    async with new_model("agent.ann") as ann:
        await ann.send("agent.bob", 1)
        output = await ann.call_error("relay_send", subject="agent.bob", payload=2)
        assert "mailbox is full. Do not send it again now" in output


async def test_an_exceeded_quota_instructs_the_model_to_wait_for_the_reader(
    relay: ListeningRelay, new_model: NewModel
) -> None:
    few = QosConfig(enabled=True, tier1=TierLimits(1, 100_000))
    await with_settings(relay, qos=few)
    async with new_model("agent.ann") as ann:
        await ann.send("agent.bob", 1)
        output = await ann.call_error("relay_send", subject="agent.bob", payload=2)
        assert "Send nothing more there until the recipient has read them" in output


async def test_an_access_rule_is_named_as_the_cause(relay: ListeningRelay, ann: Model) -> None:
    relay.context.relay.access.add_rule(
        AccessRule(from_="agent.ann", to="agent.boss", action="deny", priority=1)
    )
    await relay.context.relay.publish("agent.boss", "hello", sender="agent.other")
    output = await ann.call_error("relay_send", subject="agent.boss", payload="a raise, please")
    assert "access rules do not let" in output
    assert "Sending again will not help" in output


async def test_a_missing_endpoint_points_to_the_endpoint_list(ann: Model) -> None:
    result = await ann.call("relay_send", subject="service.nobody", payload="hello?")
    assert result.is_error
    assert result.structured_content is not None
    assert "relay_list_endpoints" in result.structured_content["what_to_do"]
    output = await ann.call_error("relay_send_and_wait", subject="service.nobody", payload="hello?")
    assert "No mailbox exists under this subject" in output


async def test_a_message_can_be_made_to_expire(ann: Model, relay: ListeningRelay) -> None:
    before_ms = time.time_ns() // 1_000_000
    await ann.send("agent.bob", "soon or never", expires_in_seconds=90)
    async with connect(relay.url, Identity.new("agent.bob")) as bob:
        message = await bob.receive(60)
    assert before_ms + 90_000 <= message.budget.ttl < before_ms + 100_000


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subject": "not a subject", "payload": 1}, "invalid subject"),
        ({"payload": 1}, "no recipient: give subject"),
        ({"subject": "_relay", "payload": 1}, "belong to the relay"),
        ({"subject": "agent.bob", "payload": 1, "message_id": "a b"}, "message_id"),
        ({"subject": "agent.bob", "payload": 1, "expires_in_seconds": -1}, "expires_in_seconds"),
        ({"subject": "agent.bob"}, "payload"),
        ({"subject": "agent.bob", "payload": "x" * 2_000_000}, "too large"),
    ],
)
async def test_bad_arguments_are_named(ann: Model, given: dict[str, Any], words: str) -> None:
    assert words in await ann.call_error("relay_send", **given)


async def test_a_time_to_live_that_is_cut_is_in_the_result(
    relay: ListeningRelay, new_model: NewModel
) -> None:
    await with_settings(relay, default_ttl_ms=3_600_000)
    async with new_model("agent.ann") as ann:
        send = {"subject": "agent.bob", "payload": 1}
        long = await ann.call("relay_send", **send, expires_in_seconds=1e6)
        short = await ann.call("relay_send", **send, expires_in_seconds=60)
    assert long.structured_content is not None
    assert 3_590 < long.structured_content["expires_in_seconds"] <= 3_600
    assert re.search(r"expires in 3,?\d{3} seconds, not later as you asked", str(long.content))
    assert short.structured_content is not None
    assert short.structured_content["expires_in_seconds"] is None
