"""Dead letters: kept with their reason, listed, grouped, redriven, purged."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.relay.observing import DAY_MS, UNLIMITED, events, files, payloads, pending, send
from waypost import BackpressureConfig, Envelope, HousekeepingConfig, Relay
from waypost.testing import ManualClock
from waypost.wire.envelopes import instant


async def make_dead_letter(relay: Relay, payload: object = None, *, to: str = "agent.a") -> str:
    """Make a dead letter with the reason "call budget exhausted"."""
    result = await send(relay, payload, to=to, budget={"call_budget_remaining": 0})
    return result.message_id


async def test_a_dead_letter_has_its_envelope_reason_time_and_endpoint(
    relay: Relay, clock: ManualClock
) -> None:
    message_id = await make_dead_letter(relay, "lost")
    (dead_letter,) = await relay.dead_letters()
    endpoint = relay.get_endpoint("agent.a")
    assert endpoint is not None
    assert (dead_letter.envelope.id, dead_letter.envelope.payload) == (message_id, "lost")
    assert dead_letter.reason == "call budget exhausted"
    assert dead_letter.failed_at == instant(clock())
    assert (dead_letter.endpoint, dead_letter.endpoint_hash) == ("agent.a", endpoint.hash)


async def test_a_dead_letter_is_in_failed_with_its_reason(relay: Relay, clock: ManualClock) -> None:
    message_id = await make_dead_letter(relay, "lost")
    await relay.idle()
    endpoint = relay.get_endpoint("agent.a")
    assert endpoint is not None
    assert endpoint.maildir_path is not None
    content = json.loads(read_bytes(endpoint.maildir_path / "failed" / message_id))
    assert content["envelope"]["payload"] == "lost"
    assert content["reason"] == "call budget exhausted"
    assert content["failed_at"] == "2023-11-14T22:13:20Z"
    assert files(endpoint)["new"] == []


def read_bytes(path: Path) -> bytes:
    return path.read_bytes()


async def test_the_oldest_failure_is_listed_first(relay: Relay, clock: ManualClock) -> None:
    relay.register_endpoint("agent.c")
    for number, to in enumerate(["agent.c", "agent.a", "agent.c"]):
        await make_dead_letter(relay, number, to=to)
        clock.advance_ms(1)
    assert [one.envelope.payload for one in await relay.dead_letters()] == [0, 1, 2]


async def test_dead_letters_can_be_listed_for_one_endpoint(relay: Relay) -> None:
    relay.register_endpoint("agent.c")
    await make_dead_letter(relay, 1)
    await make_dead_letter(relay, 2, to="agent.c")
    assert [one.envelope.payload for one in await relay.dead_letters("agent.c")] == [2]
    assert await relay.dead_letters("agent.nobody") == []


async def test_dead_letters_are_grouped_by_endpoint_and_reason(
    relay: Relay, clock: ManualClock
) -> None:
    relay.register_endpoint("agent.c")
    await send(relay, budget={"ttl": 1})
    first = clock()
    ids = []
    for _ in range(3):
        ids.append(await make_dead_letter(relay))
        clock.advance_ms(1000)
    await make_dead_letter(relay, to="agent.c")
    largest, *others = await relay.dead_letter_groups()
    assert (largest.endpoint, largest.reason, largest.count) == (
        "agent.a",
        "call budget exhausted",
        3,
    )
    assert largest.ids == ids
    assert largest.first_failed_at == instant(first)
    assert largest.last_failed_at == instant(first + 2_000_000)
    assert sorted((one.endpoint, one.count) for one in others) == [("agent.a", 1), ("agent.c", 1)]


async def test_dead_letter_groups_can_be_listed_for_one_endpoint(relay: Relay) -> None:
    relay.register_endpoint("agent.c")
    await make_dead_letter(relay)
    await make_dead_letter(relay, to="agent.c")
    assert [one.endpoint for one in await relay.dead_letter_groups("agent.c")] == ["agent.c"]


async def test_a_redriven_message_is_queued_last(relay: Relay) -> None:
    message_id = await make_dead_letter(relay, "second chance")
    await send(relay, "first")
    assert await relay.redrive(message_id) == 1
    assert await relay.dead_letters() == []
    assert payloads(await relay.lease("agent.a")) == ["first", "second chance"]


async def test_a_redriven_message_keeps_its_id_and_its_sender(relay: Relay) -> None:
    message_id = await make_dead_letter(relay)
    await relay.redrive(message_id)
    (envelope,) = await relay.lease("agent.a")
    assert (envelope.id, envelope.sender) == (message_id, "agent.b")


async def test_a_redriven_message_is_not_checked_again(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    message_id = await make_dead_letter(relay)
    await send(relay)  # now the mailbox is full
    assert await relay.redrive(message_id) == 1
    assert pending(relay) == 2


async def test_a_redriven_message_is_delivered_to_its_handler(relay: Relay) -> None:
    message_id = await make_dead_letter(relay)
    seen: list[Envelope] = []
    relay.subscribe("agent.a", seen.append)
    await relay.redrive(message_id)
    await relay.idle()
    assert [envelope.id for envelope in seen] == [message_id]


async def test_an_expired_redriven_message_is_removed(relay: Relay, clock: ManualClock) -> None:
    result = await send(relay, budget={"ttl": clock() // 1000 - 1})
    await relay.redrive(result.message_id)
    assert await relay.lease("agent.a") == []
    assert relay.metrics().total_messages == 0


async def test_a_redriven_message_is_in_new_again(relay: Relay) -> None:
    message_id = await make_dead_letter(relay)
    await relay.redrive(message_id)
    await relay.idle()
    endpoint = relay.get_endpoint("agent.a")
    assert endpoint is not None
    assert files(endpoint) == {"cur": [], "failed": [], "new": [message_id], "tmp": []}


async def test_a_message_may_fail_and_be_redriven_again_and_again(relay: Relay) -> None:
    def fail(envelope: Envelope) -> None:
        raise ValueError

    message_id = await make_dead_letter(relay)
    relay.subscribe("agent.a", fail)
    for _ in range(3):
        assert await relay.redrive(message_id) == 1
        await relay.idle()
    assert relay.metrics().by_status == {"pending": 0, "scheduled": 0, "leased": 0, "dead": 1}


async def test_a_copy_in_one_mailbox_may_be_redriven_alone(relay: Relay) -> None:
    relay.register_endpoint("agent.c")
    result = await send(relay, to="agent.*", budget={"call_budget_remaining": 0})
    assert await relay.redrive(result.message_id, subject="agent.c") == 1
    assert len(await relay.lease("agent.c")) == 1
    assert [one.endpoint for one in await relay.dead_letters()] == ["agent.a"]


async def test_an_id_without_a_dead_letter_is_not_redriven(relay: Relay) -> None:
    alive = await send(relay)
    assert await relay.redrive([alive.message_id, "never-existed"]) == 0


async def test_purging_without_an_age_deletes_everything(relay: Relay) -> None:
    endpoint = relay.get_endpoint("agent.a")
    assert endpoint is not None
    for _ in range(3):
        await make_dead_letter(relay)
    await send(relay, "alive")
    assert await relay.purge_dead_letters() == 3
    await relay.idle()
    assert await relay.dead_letters() == []
    assert files(endpoint)["failed"] == []
    assert payloads(await relay.lease("agent.a")) == ["alive"]


@pytest.mark.parametrize("as_duration", [True, False])
async def test_purging_keeps_newer_dead_letters(
    relay: Relay, clock: ManualClock, as_duration: bool
) -> None:
    await make_dead_letter(relay, "old")
    clock.advance_ms(1)
    await make_dead_letter(relay, "young")
    clock.advance_ms(60_000)
    limit = (
        timedelta(minutes=1)
        if as_duration
        else datetime(2023, 11, 14, 22, 13, 20, 1000, tzinfo=UTC)
    )
    assert await relay.purge_dead_letters(older_than=limit) == 1
    assert [one.envelope.payload for one in await relay.dead_letters()] == ["young"]


async def test_purging_can_be_limited_to_one_endpoint(relay: Relay) -> None:
    relay.register_endpoint("agent.c")
    await make_dead_letter(relay)
    await make_dead_letter(relay, to="agent.c")
    assert await relay.purge_dead_letters(subject="agent.c") == 1
    assert [one.endpoint for one in await relay.dead_letters()] == ["agent.a"]


async def test_a_purge_is_journaled(relay: Relay, data: Path) -> None:
    message_id = await make_dead_letter(relay)
    await relay.purge_dead_letters()
    (event,) = events(data, "expired")
    assert (event["id"], event["was"], event["reason"]) == (message_id, "dead", "purged")


async def test_dead_letters_past_their_retention_are_swept(start, clock: ManualClock) -> None:
    relay = await start(
        housekeeping=HousekeepingConfig(dead_letter_retention_ms=DAY_MS, sweep_interval_ms=DAY_MS)
    )
    relay.register_endpoint("agent.a")
    await make_dead_letter(relay)
    clock.advance_ms(DAY_MS)
    relay.sweep()
    assert len(await relay.dead_letters()) == 1
    clock.advance_ms(1)
    relay.sweep()
    assert await relay.dead_letters() == []


async def test_dead_letters_of_an_unregistered_endpoint_are_kept(relay: Relay) -> None:
    message_id = await make_dead_letter(relay)
    relay.unregister_endpoint("agent.a")
    (dead_letter,) = await relay.dead_letters()
    assert dead_letter.envelope.id == message_id


async def test_a_dead_letter_keeps_its_large_payload(start) -> None:
    relay = await start(rate_limit=UNLIMITED)
    relay.register_endpoint("agent.a")
    message_id = await make_dead_letter(relay, "x" * 50_000)
    (dead_letter,) = await relay.dead_letters()
    assert len(dead_letter.envelope.payload) == 50_000
    await relay.redrive(message_id)
    assert len((await relay.lease("agent.a"))[0].payload) == 50_000


async def test_a_mailbox_keeps_no_more_dead_letters_than_its_bound(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.relay.delivery.transitions.mailbox_dead_letters_max", 3)
    async with Relay(data) as relay:
        relay.register_endpoint("agent.a")
        for number in range(5):
            await relay.publish(
                "agent.a", number, sender="agent.b", budget={"call_budget_remaining": 0}
            )
        assert [dead_letter.envelope.payload for dead_letter in await relay.dead_letters()] == [
            2,
            3,
            4,
        ]
