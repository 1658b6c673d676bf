"""Several windows of one assistant that share a mailbox."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay
from tests.mcp.models import Model

Windows = tuple[Model, Model]


@pytest.fixture
async def windows(new_model: Callable[..., Any]) -> AsyncIterator[Windows]:
    async with (
        new_model("agent.me", shared=True) as first,
        new_model("agent.me", shared=True) as second,
    ):
        yield first, second


async def test_each_message_is_shown_in_one_window(
    windows: Windows, ann: Model, relay: ListeningRelay
) -> None:
    sent = {await ann.send("agent.me", number) for number in range(4)}
    seen = [await window.read() for window in windows]
    assert all(seen)
    ids = [message_id for read in seen for message_id, _ in read]
    while len(ids) < 4:
        ids += [one for one, _ in await windows[0].read()]
    assert len(ids) == 4
    assert set(ids) == sent
    for window, read in zip(windows, seen, strict=True):
        await window.call_ok("relay_ack", ids=[one for one, _ in read])
    await eventually(lambda: relay.waiting("agent.me") <= 4 - sum(map(len, seen)))


async def test_a_window_that_does_not_ask_holds_no_message(windows: Windows, ann: Model) -> None:
    first, second = windows
    await first.call_ok("relay_status")
    await ann.send("agent.me", "hello")
    assert [text for _, text in await second.read()] == ["hello"]


async def test_a_message_that_arrives_during_the_wait_is_shown(
    windows: Windows, ann: Model
) -> None:
    reading = asyncio.create_task(windows[1].read(wait_seconds=20))
    await windows[1].facts("relay_status")
    await ann.send("agent.me", "hello")
    assert [text for _, text in await reading] == ["hello"]


async def test_an_answer_is_shown_in_the_window_that_asked(windows: Windows, bob: Model) -> None:
    for number, window in enumerate(windows):
        asking = asyncio.create_task(
            window.call_ok("relay_send_and_wait", subject="agent.bob", payload=f"question {number}")
        )
        [(question, _)] = await bob.read()
        await bob.call_ok("relay_ack", ids=[question])
        await bob.send("agent.me", f"answer {number}", in_reply_to=question)
        assert f"answer {number}" in await asking


async def test_a_window_that_closes_leaves_its_messages_to_the_other(
    new_model: Callable[..., Any], ann: Model
) -> None:
    async with new_model("agent.me", shared=True) as staying:
        async with new_model("agent.me", shared=True) as closing:
            sent = await ann.send("agent.me", "hello")
            assert await closing.read() == [(sent, "hello")]
        assert await staying.read() == [(sent, "hello")]


async def test_a_window_that_does_not_share_gets_an_instruction(
    windows: Windows, new_model: Callable[..., Any]
) -> None:
    await windows[0].call_ok("relay_inbox")
    async with new_model("agent.me") as alone:
        assert "start both with --shared" in await alone.call_error("relay_inbox")
