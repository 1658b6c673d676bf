"""Callers whose messages are all rejected share a small part of the relay's time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import msgspec

from tests.eventually import eventually
from tests.server.conftest import ServeRelay, SocketRelay
from tests.server.test_pattern_floods import message
from waypost import RateLimitConfig
from waypost.policy.bounds import (
    frame_max_operations,
    rejected_callers_max,
    waiting_batches_max,
)
from waypost.server.throttle import Throttle
from waypost.wire import frames

FLOOD = {"messages": [message(">")] * 20}  # without a key, patterns are denied


def client(relay: SocketRelay) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=relay.url, trust_env=False, timeout=60)


@asynccontextmanager
async def taken(throttle: Throttle) -> AsyncIterator[None]:
    """Take the turn, as another caller's batch does."""
    throttle.record("other", rejected=True)
    async with throttle.turn("other"):
        yield


async def test_batches_of_rejected_callers_wait_for_each_other_and_few_of_them_wait(
    served: SocketRelay,
) -> None:
    async with client(served) as caller:
        assert (await caller.post("/v1/messages", json=FLOOD)).status_code == 200
        async with taken(served.context.throttle):
            waiting = [
                asyncio.create_task(caller.post("/v1/messages", json=FLOOD))
                for _ in range(waiting_batches_max + 2)
            ]
            await eventually(lambda: sum(one.done() for one in waiting) == 3)
            rejected = [one.result() for one in waiting if one.done()]
        answers = await asyncio.gather(*waiting)
    assert [one.status_code for one in rejected] == [429] * 3
    assert rejected[0].json()["reason"] == "rate_limited"
    assert "smaller batches" in rejected[0].json()["error"]
    statuses = [one.status_code for one in answers]
    assert sorted(statuses) == [200] * (waiting_batches_max - 1) + [429] * 3


async def test_a_caller_whose_batch_is_invalid_waits_the_next_time(served: SocketRelay) -> None:
    invalid = {"messages": [*FLOOD["messages"], message("not a subject")]}
    async with client(served) as caller:
        assert (await caller.post("/v1/messages", json=invalid)).status_code == 400
        async with taken(served.context.throttle):
            waiting = asyncio.create_task(caller.post("/v1/messages", json=invalid))
            await eventually(lambda: served.context.throttle.waiting == 2)
        assert (await waiting).status_code == 400


async def test_others_do_not_wait_for_a_rejected_caller(served: SocketRelay) -> None:
    async with client(served) as caller, taken(served.context.throttle):
        ok = {"messages": [message("agent.a")] * 20}
        assert (await caller.post("/v1/messages", json=ok)).status_code == 200
        agent = await served.connect("agent.b")
        assert (await agent.send("agent.a", 1)).delivered_to == 1
        await agent.disconnect()


async def test_a_flooding_connection_waits_for_the_turn(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(rate_limit=RateLimitConfig(max_per_window=1))
    throttle = relay.context.throttle
    agent = await relay.connect("agent.flood")
    send = frames.Send(ref=1, subject="agent.a", payload=msgspec.Raw(b"1"))
    for _ in range(2):
        await agent.send_frame(*[send] * frame_max_operations)
    await eventually(lambda: throttle.applies_to("agent.flood"))
    async with taken(throttle):
        await agent.send_frame(msgspec.structs.replace(send, ref=2))
        await eventually(lambda: throttle.waiting == 2)
    answer = await agent.until(frames.SendResult)
    while answer.ref != 2:
        answer = await agent.until(frames.SendResult)
    assert answer.rejected[0].reason == "rate_limited"
    await agent.disconnect()


async def test_a_caller_with_an_accepted_message_is_forgotten() -> None:
    throttle = Throttle()
    throttle.record("a", rejected=True)
    assert throttle.applies_to("a")
    throttle.record("a", rejected=False)
    assert not throttle.applies_to("a")
    for number in range(rejected_callers_max + 1):
        throttle.record(str(number), rejected=True)
    assert not throttle.applies_to("0")
    assert throttle.applies_to("1")
