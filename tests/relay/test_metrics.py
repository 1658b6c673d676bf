"""The metrics of a relay."""

from tests.relay.observing import drafts, send
from waypost import BackpressureConfig, Envelope, RateLimitConfig, Relay
from waypost.testing import ManualClock


async def test_messages_are_counted_by_status(relay: Relay) -> None:
    relay.register_endpoint("agent.c")
    await relay.publish_many([*drafts(3), *drafts(1, to="agent.c")])
    await send(relay, budget={"call_budget_remaining": 0})
    await relay.lease("agent.a", limit=1)
    metrics = relay.metrics()
    assert metrics.by_status == {"pending": 3, "scheduled": 0, "leased": 1, "dead": 1}
    assert metrics.total_messages == 5


async def test_every_mailbox_has_numbers_of_its_own(start) -> None:
    relay = await start(backpressure=BackpressureConfig(max_mailbox_size=8))
    endpoint = relay.register_endpoint("agent.a")
    relay.register_endpoint("agent.empty")
    await relay.publish_many([*drafts(3), *drafts(1, sender="agent.c", payload="x" * 2000)])
    await relay.lease("agent.a", limit=1)
    full, empty = relay.metrics().endpoints
    assert (full.subject, full.hash) == ("agent.a", endpoint.hash)
    assert (full.pending, full.leased, full.dead) == (3, 1, 0)
    assert full.pressure == 0.5
    assert full.bytes > 2000
    assert [(sender, count) for sender, count, _ in full.top_senders] == [
        ("agent.c", 1),
        ("agent.b", 3),
    ]
    assert (empty.pending, empty.bytes, empty.pressure) == (0, 0, 0.0)


async def test_events_are_counted_since_the_relay_opened(relay: Relay, start) -> None:
    result = await send(relay)
    await relay.lease("agent.a")
    await relay.nack("agent.a", result.message_id)
    await relay.ack("agent.a", result.message_id)
    await relay.redrive((await send(relay, budget={"call_budget_remaining": 0})).message_id)
    assert relay.metrics().events == {
        "accepted": 1,
        "leased": 1,
        "returned": 1,
        "acked": 1,
        "redriven": 1,
    }
    again = await start()
    assert again.metrics().events == {}


async def test_rejections_are_counted_by_their_reason(start) -> None:
    relay = await start(
        rate_limit=RateLimitConfig(max_per_window=3),
        backpressure=BackpressureConfig(max_mailbox_size=1),
    )
    relay.register_endpoint("agent.a")
    for _ in range(5):
        await send(relay)
    assert relay.metrics().rejected == {"backpressure": 2, "rate_limited": 2}


async def test_all_rejections_of_a_flood_are_counted_after_its_minute(
    start, clock: ManualClock
) -> None:
    relay = await start(rate_limit=RateLimitConfig(max_per_window=1))
    await relay.publish_many(drafts(3_001))
    clock.advance_ms(60_000)
    assert relay.metrics().rejected == {"rate_limited": 3_000}


async def test_breakers_that_are_not_at_rest_are_shown(relay: Relay) -> None:
    def fail(envelope: Envelope) -> None:
        raise ValueError

    assert relay.metrics().breakers == {}
    relay.subscribe("agent.a", fail)
    await send(relay)
    await relay.idle()
    assert relay.metrics().breakers["agent.a"].consecutive_failures == 1


async def test_events_and_commits_are_counted(relay: Relay) -> None:
    await relay.idle()
    before = relay.metrics()
    await relay.publish_many(drafts(10))
    after = relay.metrics()
    assert after.seq == before.seq + 10
    assert after.commits == before.commits + 1


async def test_the_chosen_storage_and_durability_are_shown(start) -> None:
    relay = await start(storage="journal", durability="fsync")
    metrics = relay.metrics()
    assert (metrics.storage, metrics.durability) == ("journal", "fsync")
    assert metrics.storage_full is False
    assert metrics.problems == []
