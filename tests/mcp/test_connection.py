"""Connecting: a relay that is away, elsewhere, or does not want us."""

from collections.abc import Callable
from typing import Any

from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay
from tests.mcp.models import Model, at_the_tools
from waypost.client import Identity

Sits = Callable[..., Any]
TOOLS = {
    "relay_send": {"subject": "agent.bob", "payload": 1},
    "relay_send_and_wait": {"subject": "agent.bob", "payload": 1},
    "relay_inbox": {},
    "relay_ack": {"ids": ["any"]},
    "relay_explain": {"message_id": "any"},
}


async def test_where_no_relay_answers_every_tool_says_what_to_do() -> None:
    async with at_the_tools("http://127.0.0.1:1", Identity.new("agent.ann")) as ann:
        for tool, given in TOOLS.items():
            told = await ann.rejected(tool, **given)
            assert "no relay answers at http://127.0.0.1:1" in told
            assert "waypost serve" in told
            assert "tell the person you work for" in told


async def test_the_status_is_an_answer_even_without_a_relay() -> None:
    async with at_the_tools("http://127.0.0.1:1", Identity.new("agent.ann")) as ann:
        facts = await ann.facts("relay_status")
        assert not facts["connected"]
        assert not facts["is_complete"]
        assert "no relay answers" in facts["problem"]


async def test_a_relay_that_starts_later_is_found_by_the_next_call(
    relay: ListeningRelay, sits: Sits
) -> None:
    await relay.stop()
    async with sits("agent.ann") as ann:
        await ann.rejected("relay_send", subject="agent.bob", payload="too early")
        await relay.start()
        await ann.send("agent.bob", "in time")


async def test_whoever_has_the_wrong_key_is_told_so(relay: ListeningRelay, ann: Model) -> None:
    await ann.told("relay_status")
    async with at_the_tools(relay.url, Identity.new("agent.ann")) as thief:
        told = await thief.rejected("relay_inbox")
        assert "agent.ann belongs to another key" in told
        assert "--key" in told
        assert "tell the person you work for" in told


async def test_a_second_program_with_the_same_keys_is_told_so_and_may_have_it_later(
    relay: ListeningRelay,
) -> None:
    identity = Identity.new("agent.ann")
    async with at_the_tools(relay.url, identity) as second:
        async with at_the_tools(relay.url, identity) as first:
            both = [await one.facts("relay_status") for one in (first, second)]
            assert sorted(one["connected"] for one in both) == [False, True]
            [left_out] = [one["problem"] for one in both if not one["connected"]]
            assert "Another program uses the same keys" in left_out
        assert (await second.facts("relay_status"))["connected"]


async def test_what_was_read_before_the_relay_restarted_can_be_acknowledged_after(
    relay: ListeningRelay, ann: Model, bob: Model
) -> None:
    sent = await ann.send("agent.bob", "before")
    await bob.read()
    await relay.stop()
    await relay.start()
    later = await ann.send("agent.bob", "after")
    assert await bob.read() == [(later, "after")]
    await bob.told("relay_ack", ids=[sent, later])
    await eventually(lambda: relay.waiting("agent.bob") == 0)


async def test_mail_can_be_read_while_the_relay_is_away(
    relay: ListeningRelay, ann: Model, bob: Model
) -> None:
    await ann.send("agent.bob", "already here")
    await bob.has_unread(1)
    await relay.stop()
    told = await bob.told("relay_inbox")
    assert "already here" in told
    assert "Not connected to the relay at the moment" in told
    await relay.start()
