"""Peeking: pending messages are read, and nothing changes."""

from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import events, payloads, send
from waypost import InvalidInput, Relay, UnknownEndpoint
from waypost.testing import ManualClock


async def test_a_peek_returns_the_oldest_pending_messages(relay: Relay) -> None:
    for number in range(5):
        await send(relay, number)
    assert payloads(await relay.peek("agent.a", limit=3)) == [0, 1, 2]
    assert payloads(await relay.peek("agent.a")) == [0, 1, 2, 3, 4]
    assert payloads(await relay.lease("agent.a", limit=2)) == [0, 1]
    assert payloads(await relay.peek("agent.a")) == [2, 3, 4]


async def test_a_peek_leases_nothing_and_counts_as_no_delivery(relay: Relay, data: Path) -> None:
    await send(relay, "here")
    before = events(data)
    for _ in range(10):
        await relay.peek("agent.a")
    await relay.idle()
    assert events(data) == before
    assert relay.metrics().by_status == {"pending": 1, "scheduled": 0, "leased": 0, "dead": 0}


async def test_a_peek_shows_no_expired_message(relay: Relay, clock: ManualClock) -> None:
    await send(relay, "gone", budget={"ttl": clock() // 1000 + 10})
    await send(relay, "here")
    clock.advance_ms(11)
    assert payloads(await relay.peek("agent.a")) == ["here"]


async def test_a_peek_stays_within_its_bytes_or_shows_one_message(start: Start) -> None:
    relay = await start(max_payload_bytes=16 * 1024 * 1024)
    relay.register_endpoint("agent.a")
    for mark in "xyz":
        await send(relay, mark * 7 * 1024 * 1024)
    assert [one[0] for one in payloads(await relay.peek("agent.a"))] == ["x", "y"]
    await relay.lease("agent.a", limit=3)
    await send(relay, "w" * 16_000_000)
    await send(relay, "small")
    assert [one[0] for one in payloads(await relay.peek("agent.a"))] == ["w", "s"]


async def test_a_damaged_message_hides_no_other(start: Start, data: Path) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay, "x" * 10_000)
    await send(relay, "fine")
    await relay.close()
    [body] = (data / "journal").glob("*.bodies")
    body.write_bytes(b"?" * body.stat().st_size)
    relay = await start()
    assert payloads(await relay.peek("agent.a")) == ["fine"]


async def test_bad_arguments_are_rejected(relay: Relay) -> None:
    with pytest.raises(UnknownEndpoint):
        await relay.peek("agent.unknown")
    for limit in (0, 1001):
        with pytest.raises(InvalidInput, match="limit must be 1 to 1,000"):
            await relay.peek("agent.a", limit=limit)
