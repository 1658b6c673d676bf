"""Connecting: a relay that is down, elsewhere, or rejects the agent."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.fake_relay import FakeConnection, run_fake_relay
from tests.client.session_harness import message
from tests.eventually import eventually, unchanged
from tests.harness.listening_relay import ListeningRelay
from tests.mcp.models import Model, running_model
from waypost.client import Identity
from waypost.mcp.relay_api import RelayApi
from waypost.wire import frames

NewModel = Callable[..., Any]
TOOLS = {
    "relay_send": {"subject": "agent.bob", "payload": 1},
    "relay_send_and_wait": {"subject": "agent.bob", "payload": 1},
    "relay_inbox": {},
    "relay_ack": {"ids": ["any"]},
    "relay_explain": {"message_id": "any"},
}


async def test_without_a_relay_every_tool_returns_an_instruction() -> None:
    async with running_model("http://127.0.0.1:1", Identity.new("agent.ann")) as ann:
        for tool, given in TOOLS.items():
            output = await ann.call_error(tool, **given)
            assert "no relay answers at http://127.0.0.1:1" in output
            assert "waypost serve" in output
            assert "tell the person you work for" in output


async def test_the_status_succeeds_even_without_a_relay() -> None:
    async with running_model("http://127.0.0.1:1", Identity.new("agent.ann")) as ann:
        facts = await ann.facts("relay_status")
        assert not facts["connected"]
        assert not facts["is_complete"]
        assert "no relay answers" in facts["problem"]


async def test_a_relay_that_starts_later_is_found_by_the_next_call(
    relay: ListeningRelay, new_model: NewModel
) -> None:
    await relay.stop()
    async with new_model("agent.ann") as ann:
        await ann.call_error("relay_send", subject="agent.bob", payload="too early")
        await relay.start()
        await ann.send("agent.bob", "in time")


async def test_a_wrong_key_is_reported(relay: ListeningRelay, ann: Model) -> None:
    await ann.call_ok("relay_status")
    async with running_model(relay.url, Identity.new("agent.ann")) as thief:
        output = await thief.call_error("relay_inbox")
        assert "agent.ann belongs to another key" in output
        assert "--key" in output
        assert "tell the person you work for" in output


async def test_a_second_program_with_the_same_keys_is_rejected_until_the_first_ends(
    relay: ListeningRelay,
) -> None:
    identity = Identity.new("agent.ann")
    async with running_model(relay.url, identity) as second:
        async with running_model(relay.url, identity) as first:
            both = [await one.facts("relay_status") for one in (first, second)]
            assert sorted(one["connected"] for one in both) == [False, True]
            [left_out] = [one["problem"] for one in both if not one["connected"]]
            assert "Another program uses the same keys" in left_out
        assert (await second.facts("relay_status"))["connected"]


async def test_a_message_read_before_a_relay_restart_can_be_acknowledged_after_it(
    relay: ListeningRelay, ann: Model, bob: Model
) -> None:
    sent = await ann.send("agent.bob", "before")
    await bob.read()
    await relay.stop()
    await relay.start()
    later = await ann.send("agent.bob", "after")
    assert await bob.read() == [(later, "after")]
    await bob.call_ok("relay_ack", ids=[sent, later])
    await eventually(lambda: relay.waiting("agent.bob") == 0)


async def test_fetched_messages_can_be_read_while_the_relay_is_down(
    relay: ListeningRelay, ann: Model, bob: Model
) -> None:
    await ann.send("agent.bob", "already here")
    await bob.has_unread(1)
    await relay.stop()
    output = await bob.call_ok("relay_inbox")
    assert "already here" in output
    assert "Not connected to the relay at the moment" in output
    await relay.start()


@pytest.mark.parametrize("size", [10, 200_000], ids=["many messages", "large messages"])
async def test_a_relay_without_limits_cannot_fill_the_memory(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = 0

    async def log_in(api: RelayApi) -> None:
        """Skip the proof over HTTP, which the fake relay does not offer."""

    async def endless(connection: FakeConnection) -> None:
        nonlocal answers
        await connection.accept()
        while True:
            for asked in await connection.receive_frame():
                if isinstance(asked, frames.Fetch):
                    found = [message(f"m-{answers}-{one}", "x" * size) for one in range(100)]
                    await connection.send_frame(
                        frames.FetchedMessages(ref=asked.ref, messages=found)
                    )
                    answers += 1

    monkeypatch.setattr(RelayApi, "log_in", log_in)
    async with run_fake_relay(endless) as url, running_model(url, Identity.new("agent.me")) as me:
        await eventually(lambda: answers, "the first fetch")
        await unchanged(lambda: answers, for_s=0.3)
        facts = await me.facts("relay_status")
        assert facts["unread_messages"] == answers * 100 <= 5000
        assert facts["unread_bytes"] < 100_000_000
        [[first, _], *_] = await me.read(max_bytes=1_000_000)
        await me.call_ok("relay_ack", ids=[first])
