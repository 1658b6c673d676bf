"""`was_stored` of messages that are read over HTTP: did they wait for their recipient?"""

import asyncio
from typing import Any

from tests.server.http.http_relay import HttpRelay
from tests.server.http.test_inboxes import settle


async def was_stored(served: HttpRelay) -> bool:
    """Read and acknowledge the only message of agent.b; return what agent.a finds out."""
    token_a, token_b = await served.token("agent.a"), await served.token("agent.b")
    [got] = await served.read("agent.b", token=token_b)
    return await confirmed(served, got, token_a, token_b)


async def confirmed(served: HttpRelay, got: dict[str, Any], token_a: str, token_b: str) -> bool:
    await served.ack("agent.b", [got["id"]], token=token_b)
    [receipt] = await served.read("agent.a", token=token_a)
    await served.ack("agent.a", [receipt["id"]], token=token_a)
    [(message_id, stored)] = receipt["payload"]["confirmed"]
    assert message_id == got["id"]
    return bool(stored)


async def publish(served: HttpRelay) -> None:
    """Publish from agent.a, which has a mailbox."""
    token = await served.token("agent.a")
    await served.read("agent.a", token=token)
    await served.publish("agent.b", token=token)


async def test_a_message_from_before_the_first_read_waited(served: HttpRelay) -> None:
    await publish(served)
    assert await was_stored(served)


async def test_a_message_that_ends_an_open_wait_did_not_wait(served: HttpRelay) -> None:
    token_a, token_b = await served.token("agent.a"), await served.token("agent.b")
    reading = asyncio.create_task(served.read("agent.b", token=token_b, wait=60))
    await settle()
    await publish(served)
    [got] = await reading
    assert not await confirmed(served, got, token_a, token_b)


async def test_a_message_between_two_reads_did_not_wait(served: HttpRelay) -> None:
    await served.read("agent.b", token=await served.token("agent.b"))
    served.clock.advance_ms(59_000)
    await publish(served)
    served.clock.advance_ms(1000)
    assert not await was_stored(served)


async def test_after_a_minute_without_a_read_a_message_waits(served: HttpRelay) -> None:
    await served.read("agent.b", token=await served.token("agent.b"))
    await publish(served)
    served.clock.advance_ms(60_001)
    assert await was_stored(served)


async def test_a_late_acknowledgement_of_a_message_that_did_not_wait_changes_nothing(
    served: HttpRelay,
) -> None:
    token_a, token_b = await served.token("agent.a"), await served.token("agent.b")
    await served.read("agent.b", token=token_b)
    await publish(served)
    [got] = await served.read("agent.b", token=token_b)
    served.clock.advance_ms(300_000)
    assert not await confirmed(served, got, token_a, token_b)


async def test_a_read_by_the_operator_is_none_of_the_recipient(served: HttpRelay) -> None:
    await served.token("agent.b")
    served.relay.register_endpoint("agent.b")
    await served.read("agent.b", token=served.operator)
    await publish(served)
    assert await was_stored(served)


async def test_a_read_of_several_inboxes_is_a_read_of_each(served: HttpRelay) -> None:
    body = {"inboxes": [{"subject": "agent.b"}]}
    token = await served.token("agent.b")
    await served.call("POST", "/v1/inbox/batch", token=token, json=body)
    await publish(served)
    assert not await was_stored(served)
