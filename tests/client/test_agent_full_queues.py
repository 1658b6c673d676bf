"""Full recipients: the client passes each one on to the application."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.client.conftest import WITHOUT_TIERS
from tests.harness.listening_relay import ListeningRelay, listening
from waypost import BackpressureConfig
from waypost.client import Identity, QueueFull, blocking, connect


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[ListeningRelay]:
    """A relay on which two of three mailboxes are full."""
    small = BackpressureConfig(max_mailbox_size=1)
    async with listening(tmp_path / "data", backpressure=small, **WITHOUT_TIERS) as relay:
        for name in ("one", "two", "three"):
            relay.context.relay.register_endpoint(f"team.{name}")
        for name in ("one", "two"):
            await relay.context.relay.publish(f"team.{name}", 1, sender="agent.other")
        yield relay


async def test_the_application_gets_each_full_recipient_of_a_fan_out(full: ListeningRelay) -> None:
    async with connect(full.url, Identity.new("agent.ann")) as ann:
        found = ann.full_queues()
        sent = await ann.send("team.*", "all")
        first, second = await anext(found), await anext(found)
        assert isinstance(first, QueueFull)
        assert [first.recipient, second.recipient] == ["team.one", "team.two"]
        assert {first.message_id, second.message_id} == {sent.message_id}
        assert "accepts no more messages" in first.reason
    assert [one async for one in found] == [], "it ends with the agent"


async def test_a_single_full_recipient_is_passed_on_too(full: ListeningRelay) -> None:
    async with connect(full.url, Identity.new("agent.ann")) as ann:
        found = ann.full_queues()
        sent = await ann.send("team.one", "hello")
        one = await anext(found)
        assert (one.recipient, one.message_id) == ("team.one", sent.message_id)


async def test_the_blocking_client_has_them_as_well(full: ListeningRelay) -> None:
    def run() -> list[str]:
        with blocking.connect(full.url, Identity.new("agent.ann")) as ann:
            found = ann.full_queues()
            ann.send("team.*", "all")
            return [next(found).recipient, next(found).recipient]

    assert await asyncio.to_thread(run) == ["team.one", "team.two"]
