"""Consumer loops: what raises is logged, and the message returns with its error."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.conftest import WITHOUT_TIERS, Dial
from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay, listening
from waypost import AccessRule, CircuitBreakerConfig, Reason, RedeliveryConfig
from waypost.client import Agent, Identity, Message, blocking, connect

QUICK = RedeliveryConfig(first_delay_ms=20)


async def test_a_handler_that_raises_fails_its_message_alone(tmp_path: Path, caplog) -> None:
    """One failing message among 200: the others are done in order, and it ends with its error."""
    done: list[object] = []

    async def handle(message: Message) -> None:
        if message.payload == 70:
            raise ValueError("70 is too hard")
        done.append(message.payload)

    off = CircuitBreakerConfig(enabled=False)
    async with (
        listening(tmp_path, redelivery=QUICK, circuit_breaker=off, **WITHOUT_TIERS) as relay,
        connect(relay.url, Identity.new("agent.ann")) as ann,
        connect(relay.url, Identity.new("agent.bob")) as bob,
    ):
        consuming = asyncio.create_task(bob.consume(handle))
        await ann.send_many({"subject": "agent.bob", "payload": n} for n in range(200))
        await eventually(lambda: relay.waiting("agent.bob") == 0)
        [dead] = await relay.context.relay.dead_letters("agent.bob")
        consuming.cancel()
        await asyncio.wait([consuming])
    assert done == [number for number in range(200) if number != 70]
    assert dead.reason == "max deliveries exceeded (5/5): ValueError: 70 is too hard"
    logged = [one for one in caplog.records if one.name == "waypost.client"]
    assert len(logged) == 5
    assert f"agent.bob: message {dead.envelope.id} failed (attempt 5)" in caplog.text
    assert "ValueError: 70 is too hard" in caplog.text


async def test_consuming_ends_when_the_agent_is_closed(dial: Dial) -> None:
    async with dial("agent.bob") as bob:
        consuming = asyncio.create_task(bob.consume(print))
        await asyncio.sleep(0)
    await asyncio.wait_for(consuming, 60)


async def test_a_blocking_handler_that_raises_fails_its_message(
    ann: Agent, relay: ListeningRelay, caplog
) -> None:
    await ann.send_many({"subject": "agent.bob", "payload": n} for n in range(2))
    seen: list[object] = []

    def program() -> None:
        with blocking.connect(relay.url, Identity.new("agent.bob")) as bob:

            def handle(message: blocking.Message) -> None:
                seen.append((message.payload, message.attempt))
                if len(seen) == 1:
                    raise KeyError("first")
                if len(seen) == 3:
                    bob.close()

            bob.consume(handle)

    await asyncio.to_thread(program)
    assert sorted(seen) == [(0, 1), (0, 2), (1, 1)]
    assert "agent.bob: message" in caplog.text


async def test_an_exception_that_ends_a_bare_loop_is_logged_with_agent_and_message(
    ann: Agent, dial: Dial, caplog
) -> None:
    sent = await ann.send("agent.bob", "hot")

    async def work() -> None:
        async with dial("agent.bob") as bob:
            async for _ in bob:
                _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        await work()
    assert f"agent.bob: closed by an exception while it held message {sent.message_id}" in (
        caplog.text
    )


async def test_a_cancelled_block_returns_its_message_without_an_error(
    ann: Agent, bob: Agent, relay: ListeningRelay, caplog
) -> None:
    sent = await ann.send("agent.bob", "slow")

    async def work() -> None:
        async with await bob.receive(60):
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await eventually(lambda: relay.context.relay.inspect().counts["leased"] == 1)
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait([working])
    await eventually(lambda: relay.context.relay.inspect().counts["returned"] == 1)
    steps = (await relay.context.relay.explain(sent.message_id)).steps
    assert "returned to the queue: nack" in [step.text for step in steps]
    assert caplog.records == []


async def test_a_denied_reply_is_a_value(ann: Agent, bob: Agent, relay: ListeningRelay) -> None:
    await ann.send("agent.bob", "well?")
    message = await bob.receive(60)
    relay.context.relay.access.add_rule(AccessRule("agent.bob", "agent.ann", "deny"))
    result = await message.reply("well.")
    assert (result.delivered_to, result.message_id) == (0, "")
    assert [one.reason for one in result.rejected] == [Reason.ACCESS_DENIED]


async def test_a_denied_reply_of_a_blocking_agent_is_a_value(
    ann: Agent, relay: ListeningRelay, identities: Callable[[str], Identity]
) -> None:
    await ann.send("agent.bob", "well?")
    relay.context.relay.access.add_rule(AccessRule("agent.bob", "agent.ann", "deny"))

    def program() -> list[Reason]:
        with blocking.connect(relay.url, identities("agent.bob")) as bob:
            return [one.reason for one in bob.receive(60).reply("well.").rejected]

    assert await asyncio.to_thread(program) == [Reason.ACCESS_DENIED]
