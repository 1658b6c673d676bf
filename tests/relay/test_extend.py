"""Extended leases: a consumer that needs longer keeps its message."""

from pathlib import Path

import pytest

from tests.relay.conftest import Start
from tests.relay.observing import events, payloads, send
from waypost import Envelope, InvalidInput, Relay, UnknownEndpoint
from waypost.testing import ManualClock


async def leased(relay: Relay) -> Envelope:
    await send(relay, "work")
    (envelope,) = await relay.lease("agent.a")
    return envelope


async def test_an_extended_lease_does_not_time_out(relay: Relay, clock: ManualClock) -> None:
    envelope = await leased(relay)
    clock.advance_ms(29_000)
    assert await relay.extend("agent.a", envelope.id, 60) == 1
    clock.advance_ms(59_000)
    assert await relay.lease("agent.a") == []
    clock.advance_ms(1_000)
    assert payloads(await relay.lease("agent.a")) == ["work"]


async def test_a_lease_is_extended_as_often_as_needed(relay: Relay, clock: ManualClock) -> None:
    envelope = await leased(relay)
    for _ in range(20):
        clock.advance_ms(25_000)
        assert await relay.extend("agent.a", [envelope.id], 30) == 1
    assert await relay.ack("agent.a", envelope.id) == 1
    assert relay.metrics().by_status == {
        "pending": 0,
        "scheduled": 0,
        "leased": 0,
        "dead": 0,
    }


async def test_a_shorter_extension_does_not_shorten_a_lease(
    relay: Relay, clock: ManualClock
) -> None:
    envelope = await leased(relay)
    assert await relay.extend("agent.a", envelope.id, 1) == 1
    clock.advance_ms(29_000)
    assert await relay.lease("agent.a") == []


async def test_only_leased_messages_are_extended(relay: Relay) -> None:
    envelope = await leased(relay)
    await relay.nack("agent.a", envelope.id)
    assert await relay.extend("agent.a", [envelope.id, "never-existed"], 60) == 0
    with pytest.raises(UnknownEndpoint):
        await relay.extend("agent.nobody", envelope.id, 60)


@pytest.mark.parametrize("seconds", [-1, 24 * 3600 + 1, float("nan"), "60"])
async def test_an_extension_has_bounds(relay: Relay, seconds: float) -> None:
    envelope = await leased(relay)
    with pytest.raises(InvalidInput):
        await relay.extend("agent.a", envelope.id, seconds)


async def test_an_extension_is_journaled_and_explained_and_is_no_delivery(
    relay: Relay, data: Path
) -> None:
    envelope = await leased(relay)
    await relay.extend("agent.a", envelope.id, 90)
    first, second = events(data, "leased")
    assert second["until_us"] == second["at_us"] + 90_000_000
    assert (second["extended"], second.get("attempt", 1), first.get("extended")) == (True, 1, None)
    texts = [one.text for one in (await relay.explain(envelope.id)).steps]
    assert texts[-1].startswith("lease extended until 20")
    assert (relay.metrics().events["leased"], relay.metrics().events["extended"]) == (1, 1)


async def test_however_often_a_lease_is_extended_the_journal_grows_slowly(
    relay: Relay, clock: ManualClock, data: Path
) -> None:
    envelope = await leased(relay)
    for _ in range(300):
        clock.advance_ms(100)
        await relay.extend("agent.a", envelope.id, 30)
    assert len(events(data, "leased")) <= 6


async def test_a_restart_ends_an_extended_lease(start: Start, clock: ManualClock) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    envelope = await leased(relay)
    await relay.extend("agent.a", envelope.id, 3600)
    relay = await start()
    assert payloads(await relay.lease("agent.a")) == ["work"]
