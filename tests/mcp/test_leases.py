"""Leases of messages that a model works on: kept while it makes calls, and not for ever."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay, listening
from tests.mcp.models import running_model
from waypost.client import Identity
from waypost.mcp import connection


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[ListeningRelay]:
    """A relay with a short lease timeout."""
    async with listening(tmp_path / "data", lease_timeout_ms=600) as running:
        yield running


def counted(relay: ListeningRelay, kind: str) -> int:
    return relay.context.relay.inspect().counts[kind]


async def test_a_model_keeps_a_message_for_longer_than_the_timeout(relay: ListeningRelay) -> None:
    async with running_model(relay.url, Identity.new("agent.ann")) as ann:
        await ann.call_ok("relay_status")
        sent = await relay.context.relay.publish("agent.ann", "think about it", sender="agent.bob")
        assert "think about it" in await ann.call_ok("relay_inbox", wait_seconds=5)
        await eventually(lambda: counted(relay, "extended") >= 5)
        await ann.call_ok("relay_ack", ids=[sent.message_id])
        await eventually(lambda: relay.waiting("agent.ann") == 0)
    assert counted(relay, "returned") == 0


async def test_a_model_that_makes_no_calls_releases_its_messages_and_gets_them_again(
    relay: ListeningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "IDLE_MAX_S", 0.3)
    monkeypatch.setattr(connection, "FETCH_WAIT_S", 0.05)
    async with running_model(relay.url, Identity.new("agent.ann")) as ann:
        await ann.call_ok("relay_status")
        await relay.context.relay.publish("agent.ann", "think about it", sender="agent.bob")
        assert "think about it" in await ann.call_ok("relay_inbox", wait_seconds=5)
        await eventually(lambda: counted(relay, "returned") == 1)
        assert relay.context.hub.stuck_count() == 0
        (message,) = relay.context.relay.inspect().peek("agent.ann", 1).messages
        assert message.envelope.payload == "think about it"
        assert "think about it" in await ann.call_ok("relay_inbox", wait_seconds=5)
    assert relay.context.relay.metrics().by_status["dead"] == 0
