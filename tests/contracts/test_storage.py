"""One contract for every storage and durability: the same calls have the same results."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from waypost import Envelope, RateLimitConfig, Relay, Settings
from waypost.testing import ManualClock

INLINE_MAX = 4096
Reopen = Callable[..., Awaitable[Relay]]


@pytest.fixture(params=["maildir", "journal"])
def storage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["fsync", "async"])
def durability(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def reopen(
    tmp_path: Path, storage: str, durability: str, clock: ManualClock
) -> AsyncIterator[Reopen]:
    """Close the relay, if it is open, and open its directory again."""
    opened: list[Relay] = []

    async def close_and_open(**fields: Any) -> Relay:
        while opened:
            await opened.pop().close()
        chosen = {"storage": storage, "durability": durability, "watch_files": False, **fields}
        chosen["rate_limit"] = RateLimitConfig(enabled=False)
        relay = Relay(tmp_path, settings=Settings(**chosen), clock=clock)
        opened.append(await relay.open())
        return relay

    yield close_and_open
    for relay in opened:
        await relay.close()


@pytest.fixture
async def relay(reopen: Reopen) -> Relay:
    opened = await reopen()
    opened.register_endpoint("agent.a")
    return opened


async def send(relay: Relay, payload: object, to: str = "agent.a", **more: Any) -> str:
    return (await relay.publish(to, payload, sender="agent.b", **more)).message_id


async def leased(relay: Relay, subject: str = "agent.a", **more: Any) -> list[Any]:
    return [envelope.payload for envelope in await relay.lease(subject, **more)]


def bodies_on_disk(directory: Path) -> int:
    return sum(os.stat(path).st_size for path in (directory / "journal").glob("*.bodies"))


async def test_a_published_message_can_be_leased(relay: Relay) -> None:
    message_id = await send(relay, {"n": [1, None, "ü"]}, reply_to="agent.b")
    (envelope,) = await relay.lease("agent.a")
    assert (envelope.id, envelope.payload) == (message_id, {"n": [1, None, "ü"]})
    assert (envelope.sender, envelope.reply_to) == ("agent.b", "agent.b")


async def test_messages_come_in_the_order_they_were_published(relay: Relay) -> None:
    for number in range(20):
        await send(relay, number)
    assert await leased(relay) == list(range(20))


async def test_messages_published_at_the_same_time_come_in_the_order_they_were_given(
    relay: Relay,
) -> None:
    await asyncio.gather(*(send(relay, number) for number in range(50)))
    assert await leased(relay) == list(range(50))


async def test_a_lease_is_exclusive_until_it_ends(relay: Relay, clock: ManualClock) -> None:
    await send(relay, 1)
    assert await leased(relay) == [1]
    assert await leased(relay) == []
    clock.advance_ms(30_000)
    assert await leased(relay) == [1]


async def test_acknowledged_messages_are_removed(relay: Relay, reopen: Reopen) -> None:
    done, kept = await send(relay, "done"), await send(relay, "kept")
    assert await relay.ack("agent.a", [done]) == 1
    assert await relay.ack("agent.a", [done]) == 0
    relay = await reopen()
    assert [envelope.id for envelope in await relay.lease("agent.a")] == [kept]


async def test_a_returned_message_takes_its_old_queue_position(relay: Relay) -> None:
    ids = [await send(relay, number) for number in range(3)]
    await relay.lease("agent.a", limit=2)
    await relay.nack("agent.a", [ids[1], ids[0]])
    assert await leased(relay) == [0, 1, 2]


async def test_a_handled_message_is_consumed(relay: Relay, reopen: Reopen) -> None:
    seen: list[Any] = []
    relay.subscribe("agent.>", lambda envelope: seen.append(envelope.payload))
    for number in range(40):
        await send(relay, number)
    await relay.idle()
    assert seen == list(range(40))
    assert (await reopen()).metrics().total_messages == 0


async def test_a_failed_message_is_a_dead_letter_that_can_be_redriven(
    relay: Relay, reopen: Reopen
) -> None:
    def fail(envelope: Envelope) -> None:
        raise ValueError("no")

    relay.subscribe("agent.a", fail)
    message_id = await send(relay, "again")
    await relay.idle()
    relay = await reopen()
    (dead,) = await relay.dead_letters()
    assert (dead.reason, dead.envelope.payload) == ("handler failed: ValueError: no", "again")
    await send(relay, "first")
    assert await relay.redrive(message_id) == 1
    relay = await reopen()
    assert await leased(relay) == ["first", "again"]


async def test_a_message_over_its_budget_is_a_dead_letter_that_can_be_purged(
    relay: Relay, reopen: Reopen
) -> None:
    await send(relay, "lost", budget={"call_budget_remaining": 0})
    relay = await reopen()
    assert [one.reason for one in await relay.dead_letters()] == ["call budget exhausted"]
    assert await relay.purge_dead_letters() == 1
    relay = await reopen()
    assert await relay.dead_letters() == []


async def test_a_small_payload_lies_in_its_event_and_a_large_one_beside_it(
    relay: Relay, tmp_path: Path
) -> None:
    await send(relay, "x" * (INLINE_MAX - 2))  # with its quotes, the largest that is small
    assert bodies_on_disk(tmp_path) == 0
    await send(relay, "x" * (INLINE_MAX - 1))
    assert bodies_on_disk(tmp_path) == INLINE_MAX + 1


async def test_a_large_payload_is_complete_before_and_after_a_restart(
    relay: Relay, reopen: Reopen
) -> None:
    payload = {"text": "ü\n" * 200_000, "end": True}
    message_id = await send(relay, payload)
    assert await leased(relay) == [payload]
    await relay.nack("agent.a", message_id)
    relay = await reopen()
    assert await leased(relay) == [payload]


async def test_a_large_payload_is_kept_once_however_many_get_it(
    relay: Relay, reopen: Reopen, tmp_path: Path
) -> None:
    for number in range(9):
        relay.register_endpoint(f"crowd.{number}")
    await send(relay, "x" * 20_000, to="crowd.*")
    assert bodies_on_disk(tmp_path) == 20_002
    relay = await reopen()
    assert [await leased(relay, f"crowd.{number}") for number in range(9)] == [["x" * 20_000]] * 9


async def test_two_equal_large_payloads_are_two_messages(relay: Relay) -> None:
    payload = "x" * 10_000
    await send(relay, payload)
    await send(relay, payload)
    assert await leased(relay) == [payload, payload]


async def test_everything_is_as_it_was_after_a_restart(relay: Relay, reopen: Reopen) -> None:
    relay.register_endpoint("agent.c")
    for number in range(6):
        await send(relay, number, message_id=f"order-{number}")
    await send(relay, "large" * 5_000, to="agent.c")
    await relay.lease("agent.a", limit=2)
    await relay.ack("agent.a", "order-0")
    await send(relay, "dead", budget={"ttl": 1})
    before = relay.metrics()
    relay = await reopen()
    after = relay.metrics()
    assert [(one.subject, one.bytes, one.dead) for one in after.endpoints] == [
        (one.subject, one.bytes, one.dead) for one in before.endpoints
    ]
    assert await leased(relay) == [1, 2, 3, 4, 5]
    assert await leased(relay, "agent.c") == ["large" * 5_000]
    assert (await relay.publish("agent.a", "again", sender="agent.b", message_id="order-0")) == (
        await relay.publish("agent.a", "again", sender="agent.b", message_id="order-0")
    )
    assert await leased(relay) == []


async def test_messages_survive_many_segments(relay: Relay, tmp_path: Path, reopen: Reopen) -> None:
    for number in range(5):
        await send(relay, [number, "x" * 5_000])
        await relay.seal_journal()
    assert len(list((tmp_path / "journal").glob("*.jsonl"))) == 5
    relay = await reopen()
    assert [payload[0] for payload in await leased(relay)] == [0, 1, 2, 3, 4]


async def test_the_history_of_a_message_is_the_same(relay: Relay) -> None:
    message_id = await send(relay, 1)
    await relay.lease("agent.a")
    await relay.ack("agent.a", message_id)
    kinds = [step.kind for step in (await relay.explain(message_id)).steps]
    assert kinds == ["check", "check", "check", "accepted", "leased", "acked"]


async def test_messages_are_kept_when_the_storage_changes(
    relay: Relay, reopen: Reopen, storage: str, tmp_path: Path
) -> None:
    message_ids = [await send(relay, number) for number in range(3)]
    await send(relay, "dead", budget={"ttl": 1})
    await relay.ack("agent.a", message_ids[0])
    other = {"maildir": "journal", "journal": "maildir"}[storage]
    relay = await reopen(storage=other)
    await relay.ack("agent.a", message_ids[1])
    relay = await reopen()
    assert [envelope.id for envelope in await relay.lease("agent.a")] == message_ids[2:]
    assert len(await relay.dead_letters()) == 1
    await relay.idle()
    seen = {path.name for path in (tmp_path / "mailboxes").glob("*/cur/*")}
    assert seen == (set(message_ids[2:]) if storage == "maildir" else set())
