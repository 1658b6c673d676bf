"""What the relay refuses comes back as an instruction."""

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

Sits = Callable[..., Any]


async def with_settings(relay: ListeningRelay, **fields: Any) -> None:
    await relay.stop()
    relay.settings = msgspec.structs.replace(relay.settings, **fields)
    await relay.start()


async def test_whoever_is_too_fast_is_told_how_many_seconds_to_wait(
    relay: ListeningRelay, sits: Sits
) -> None:
    await with_settings(relay, rate_limit=RateLimitConfig(max_per_window=2, window_secs=60))
    async with sits("agent.ann") as ann:
        await ann.send("agent.bob", 1)
        await ann.send("agent.bob", 2)
        result = await ann.call("relay_send", subject="agent.bob", payload=3)
        assert result.is_error
        assert result.structured_content is not None
        wait = result.structured_content["retry_after_seconds"]
        assert 50 < wait <= 60
        assert f"You send too fast. Wait {wait} seconds" in result.structured_content["what_to_do"]
        assert result.structured_content["rejected"][0]["reason"] == "rate_limited"


async def test_a_full_mailbox_is_not_to_be_written_to_again_at_once(
    relay: ListeningRelay, sits: Sits
) -> None:
    await with_settings(relay, backpressure=BackpressureConfig(max_mailbox_size=1))
    async with sits("agent.ann") as ann:
        await ann.send("agent.bob", 1)
        told = await ann.rejected("relay_send", subject="agent.bob", payload=2)
        assert "mailbox is full. Do not send it again now" in told


async def test_a_quota_that_is_used_up_says_to_wait_for_the_reader(
    relay: ListeningRelay, sits: Sits
) -> None:
    few = QosConfig(enabled=True, tier1=TierLimits(1, 100_000))
    await with_settings(relay, qos=few)
    async with sits("agent.ann") as ann:
        await ann.send("agent.bob", 1)
        told = await ann.rejected("relay_send", subject="agent.bob", payload=2)
        assert "Send nothing more there until the recipient has read it" in told


async def test_access_rules_are_named_as_what_they_are(relay: ListeningRelay, ann: Model) -> None:
    relay.services.relay.access.add_rule(
        AccessRule(from_="agent.ann", to="agent.boss", action="deny", priority=1)
    )
    await relay.services.relay.publish("agent.boss", "hello", sender="agent.other")
    told = await ann.rejected("relay_send", subject="agent.boss", payload="a raise, please")
    assert "access rules do not let" in told
    assert "Sending again will not help" in told


async def test_nobody_there_says_how_to_find_somebody(ann: Model) -> None:
    result = await ann.call("relay_send", subject="service.nobody", payload="hello?")
    assert result.is_error
    assert result.structured_content is not None
    assert "relay_list_endpoints" in result.structured_content["what_to_do"]
    told = await ann.rejected("relay_send_and_wait", subject="service.nobody", payload="hello?")
    assert "Nobody has a mailbox under this subject" in told


async def test_a_message_can_be_made_to_expire(ann: Model, relay: ListeningRelay) -> None:
    before_ms = time.time_ns() // 1_000_000
    await ann.send("agent.bob", "soon or never", expires_in_seconds=90)
    async with connect(relay.url, Identity.new("agent.bob")) as bob:
        message = await bob.receive(5)
    assert before_ms + 90_000 <= message.budget.ttl < before_ms + 100_000


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subject": "not a subject", "payload": 1}, "invalid subject"),
        ({"payload": 1}, "say whom to write to"),
        ({"subject": "_relay", "payload": 1}, "belong to the relay"),
        ({"subject": "agent.bob", "payload": 1, "message_id": "a b"}, "message_id"),
        ({"subject": "agent.bob", "payload": 1, "expires_in_seconds": -1}, "expires_in_seconds"),
        ({"subject": "agent.bob"}, "payload"),
        ({"subject": "agent.bob", "payload": "x" * 2_000_000}, "too large"),
    ],
)
async def test_bad_arguments_are_named(ann: Model, given: dict[str, Any], words: str) -> None:
    assert words in await ann.rejected("relay_send", **given)
