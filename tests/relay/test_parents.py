"""Parents of follow-ups: found in memory, or else in the journal, for their recipients only."""

import msgspec
import pytest

from tests.relay.conftest import Start
from tests.relay.observing import DAY_MS, UNLIMITED, send
from waypost import Envelope, HousekeepingConfig, RateLimitConfig, Relay
from waypost.relay.journal.segments import Location
from waypost.relay.state.mailbox import Message
from waypost.relay.state.recent import RecentlyAcked
from waypost.testing import ManualClock


async def delivered(relay: Relay) -> Envelope:
    """Deliver a message to `agent.a`."""
    await send(relay)
    (envelope,) = await relay.lease("agent.a")
    return envelope


@pytest.mark.parametrize("then", ["leased", "nacked", "released"])
async def test_a_delivered_message_is_found_in_memory(relay: Relay, then: str) -> None:
    envelope = await delivered(relay)
    if then == "released":
        relay.claims.release("agent.a", envelope.id)
    elif then == "nacked":
        await relay.nack("agent.a", envelope.id)
    await relay.idle()
    assert relay.inspect().parents.find("agent.a", envelope.id) == envelope
    assert relay.inspect().parents.find("agent.b", envelope.id) is None


async def test_a_message_that_a_connected_agent_acknowledged_is_found_in_memory(
    relay: Relay,
) -> None:
    await send(relay)
    consumer = relay.attach("agent.a", lambda: None)
    (taken,) = consumer.take(1)
    consumer.ack([taken.envelope.id])
    await relay.idle()
    parents = relay.inspect().parents
    found = parents.find("agent.a", taken.envelope.id)
    assert found == msgspec.structs.replace(taken.envelope, payload=None)
    assert parents.find("agent.b", taken.envelope.id) is None


async def test_a_pending_message_is_no_parent(relay: Relay) -> None:
    sent = await send(relay)
    assert relay.inspect().parents.find("agent.a", sent.message_id) is None
    assert await relay.inspect().parents.search("agent.a", sent.message_id) is None


async def test_a_message_acknowledged_without_a_delivery_is_no_parent(relay: Relay) -> None:
    sent = await send(relay)
    await relay.ack("agent.a", sent.message_id)
    assert await relay.inspect().parents.search("agent.a", sent.message_id) is None


async def test_a_message_that_memory_has_forgotten_is_found_in_the_journal(relay: Relay) -> None:
    envelope = await delivered(relay)
    await relay.ack("agent.a", envelope.id)
    parents = relay.inspect().parents
    assert parents.find("agent.a", envelope.id) is None
    assert await parents.search("agent.a", envelope.id) == envelope
    assert await parents.search("agent.b", envelope.id) is None


async def test_a_dead_letter_that_was_delivered_is_a_parent(
    relay: Relay, clock: ManualClock
) -> None:
    envelope = await delivered(relay)
    while not await relay.dead_letters():
        await relay.nack("agent.a", envelope.id)
        clock.advance_ms(60_000)
        await relay.lease("agent.a")
    assert relay.inspect().parents.find("agent.a", envelope.id) == envelope


async def test_after_the_retention_of_the_journal_there_is_no_parent(
    start: Start, clock: ManualClock
) -> None:
    relay = await start(housekeeping=HousekeepingConfig(journal_retention_ms=DAY_MS))
    relay.register_endpoint("agent.a")
    envelope = await delivered(relay)
    await relay.ack("agent.a", envelope.id)
    await relay.seal_journal()
    await send(relay)
    clock.advance_ms(2 * DAY_MS)
    await relay.rebuild_index()
    relay.sweep()
    await relay.idle()
    assert await relay.inspect().parents.search("agent.a", envelope.id) is None


async def test_a_sender_at_its_rate_limit_gets_no_look_up(start: Start) -> None:
    relay = await start(rate_limit=UNLIMITED)
    relay.register_endpoint("agent.a")
    envelope = await delivered(relay)
    await relay.ack("agent.a", envelope.id)
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    relay.register_endpoint("agent.a")
    parents = relay.inspect().parents
    assert await parents.search("agent.a", envelope.id) == envelope
    await send(relay, to="agent.b", sender="agent.a")
    assert await parents.search("agent.a", envelope.id) is None


@pytest.mark.parametrize("step", [1, 10, 10_000])
def test_acknowledged_messages_in_memory_have_a_bound(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.relay.state.recent._GENERATION_MAX", 100)
    recent, last = RecentlyAcked(), 1_000
    for number in range(last + 1):
        location = Location(1, number, 1)
        message = Message(
            id=str(number),
            order=number,
            endpoint="agent.a",
            sender="agent.b",
            size=1,
            ttl=1,
            tier=1,
            at_us=1,
            location=location,
            via="lease",
        )
        recent.add([message])
        if number % step == 0:
            assert recent.get("agent.a", str(number)) == location
    assert len(recent) <= 300
    for number in (last, last - 99):
        assert recent.get("agent.a", str(number)) == Location(1, number, 1)
    assert recent.get("agent.b", str(last)) is None
