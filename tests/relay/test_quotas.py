"""Tiers and quotas: how much of an inbox one sender may fill, and which messages are evicted."""

from pathlib import Path

import msgspec
import pytest

from tests.relay.observing import (
    DAY_MS,
    UNLIMITED,
    drafts,
    events,
    files,
    payloads,
    pending,
    reasons,
    send,
)
from waypost import (
    BackpressureConfig,
    CircuitBreakerConfig,
    HousekeepingConfig,
    QosConfig,
    RateLimitConfig,
    Reason,
    Relay,
    Signal,
    TierLimits,
)
from waypost.relay.state import known_senders as state
from waypost.relay.state import payloads as bodies
from waypost.testing import ManualClock

WIDE = 1 << 40
TIERS = QosConfig(
    enabled=True,
    tier1=TierLimits(1, WIDE),
    tier2=TierLimits(2, WIDE),
    tier3=TierLimits(3, WIDE),
)
WEEK_MS = 7 * DAY_MS


@pytest.fixture
async def strict(start) -> Relay:
    """A relay where a sender may store 1, 2 or 3 messages in an inbox, by tier."""
    # Swept once a day, because some tests let years go by.
    rarely = HousekeepingConfig(sweep_interval_ms=DAY_MS)
    relay = await start(qos=TIERS, rate_limit=UNLIMITED, housekeeping=rarely)
    relay.register_endpoint("agent.a")
    relay.register_endpoint("agent.b")
    return relay


async def room_for(relay: Relay) -> int:
    """Return how many messages `agent.b` can store in the inbox of `agent.a`."""
    count = 0
    while (await send(relay)).delivered_to:
        count += 1
    return count


async def reply(relay: Relay) -> None:
    await send(relay, to="agent.b", sender="agent.a")


async def test_a_sender_never_written_to_is_in_the_lowest_tier(strict: Relay) -> None:
    assert await room_for(strict) == 1


async def test_writing_often_does_not_make_a_sender_known(strict: Relay) -> None:
    result = await send(strict)
    await strict.ack("agent.a", result.message_id)
    assert await room_for(strict) == 1


async def test_a_sender_that_got_a_reply_is_in_the_highest_tier(strict: Relay) -> None:
    await reply(strict)
    assert await room_for(strict) == 3


async def test_an_answer_as_old_as_the_window_still_counts(
    strict: Relay, clock: ManualClock
) -> None:
    await reply(strict)
    clock.advance_ms(WEEK_MS)
    assert await room_for(strict) == 3


async def test_an_answer_older_than_the_window_is_the_middle_tier(
    strict: Relay, clock: ManualClock
) -> None:
    await reply(strict)
    clock.advance_ms(WEEK_MS + 1)
    assert await room_for(strict) == 2


async def test_an_answer_years_ago_still_counts_for_the_middle_tier(
    strict: Relay, clock: ManualClock
) -> None:
    await reply(strict)
    clock.advance_ms(100 * WEEK_MS)
    assert await room_for(strict) == 2


async def test_a_quota_rejection_has_the_same_text_in_every_tier(strict: Relay) -> None:
    await room_for(strict)
    stranger = await send(strict)
    await reply(strict)
    await room_for(strict)
    friend = await send(strict)
    assert stranger.rejected == friend.rejected
    assert stranger.rejected[0].reason is Reason.QUOTA_EXCEEDED
    assert stranger.rejected[0].detail == "sender quota exceeded for this inbox"


async def test_a_quota_rejection_does_not_make_a_dead_letter(strict: Relay) -> None:
    await room_for(strict)
    assert await strict.dead_letters() == []


async def test_the_quota_of_one_sender_does_not_affect_another(strict: Relay) -> None:
    await room_for(strict)
    assert (await send(strict, sender="agent.other")).delivered_to == 1


async def test_the_bytes_of_a_quota_may_be_used_to_the_last(start) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay, "x")
    size = relay.metrics().endpoints[0].bytes
    relay = await start(qos=QosConfig(enabled=True, tier1=TierLimits(10, 3 * size)))
    assert (await send(relay, "x")).delivered_to == 1
    assert reasons(await send(relay, "xx")) == [Reason.QUOTA_EXCEEDED]
    assert (await send(relay, "x")).delivered_to == 1
    assert reasons(await send(relay, "x")) == [Reason.QUOTA_EXCEEDED]


async def test_leased_messages_count(strict: Relay) -> None:
    await room_for(strict)
    await strict.lease("agent.a")
    assert await room_for(strict) == 0


async def test_an_acknowledged_message_frees_its_share(strict: Relay) -> None:
    result = await send(strict)
    await strict.lease("agent.a")
    await strict.ack("agent.a", result.message_id)
    assert await room_for(strict) == 1


async def test_an_expired_message_frees_its_share(strict: Relay, clock: ManualClock) -> None:
    await send(strict)
    clock.advance_ms(3_600_001)
    assert await room_for(strict) == 1


async def test_a_dead_letter_does_not_count_towards_the_quota(strict: Relay) -> None:
    def fail(envelope: object) -> None:
        raise ValueError

    stop = strict.subscribe("agent.a", fail)
    await send(strict)
    await strict.idle()
    stop()
    assert len(await strict.dead_letters()) == 1
    assert await room_for(strict) == 1


async def test_a_publish_rejected_by_the_quota_counts_as_contact(start) -> None:
    no_strangers = msgspec.structs.replace(TIERS, tier1=TierLimits(0, WIDE))
    relay = await start(qos=no_strangers, rate_limit=UNLIMITED)
    for name in ("agent.a", "agent.b"):
        relay.register_endpoint(name)
    rejected = await send(relay, to="agent.b", sender="agent.a")
    assert reasons(rejected) == [Reason.QUOTA_EXCEEDED]
    assert await room_for(relay) == 3


async def test_a_rate_limited_publish_does_not_count_as_contact(start) -> None:
    slow = RateLimitConfig(per_sender_overrides={"agent.a": 1})
    relay = await start(qos=TIERS, rate_limit=slow)
    for name in ("agent.a", "agent.b"):
        relay.register_endpoint(name)
    await send(relay, to="agent.elsewhere", sender="agent.a")
    rejected = await send(relay, to="agent.b", sender="agent.a")
    assert reasons(rejected) == [Reason.RATE_LIMITED]
    assert await room_for(relay) == 1


async def test_with_quotas_off_no_sender_is_rejected_and_all_are_unknown(start) -> None:
    relay = await start(rate_limit=UNLIMITED, qos=QosConfig(enabled=False, tier1=TierLimits(0, 0)))
    relay.register_endpoint("agent.a")
    assert (await send(relay)).delivered_to == 1


async def test_an_unlimited_tier_accepts_what_the_default_rejects(start) -> None:
    off = TierLimits(18446744073709551615, 18446744073709551615)
    relay = await start(qos=QosConfig(enabled=True, tier1=off), rate_limit=UNLIMITED)
    relay.register_endpoint("agent.a")
    results = [await send(relay) for _ in range(QosConfig().tier1.max_envelopes + 1)]
    assert [one.delivered_to for one in results] == [1] * len(results)


async def test_more_pairs_than_fit_into_memory_are_still_known(
    start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "last_seen_in_memory_max_pairs", 10)
    relay = await start(qos=TIERS, rate_limit=UNLIMITED)
    for name in ("agent.a", "agent.b"):
        relay.register_endpoint(name)
    await reply(relay)
    for number in range(30):
        await send(relay, to="agent.b", sender=f"crowd.{number}")
    await relay.rebuild_index()
    relay = await start(qos=TIERS, rate_limit=UNLIMITED)
    for number in range(30):
        await send(relay, to="agent.b", sender=f"crowd.{number}")
    assert await room_for(relay) == 3


@pytest.fixture
async def narrow(start) -> Relay:
    """An inbox with room for three messages of 1,000 characters and a little more."""
    relay = await start(
        qos=QosConfig(enabled=True, tier1=TierLimits(100, WIDE), inbox_max_bytes=4200)
    )
    relay.register_endpoint("agent.a")
    return relay


async def test_a_full_inbox_evicts_the_oldest_message_of_the_heaviest_sender(narrow: Relay) -> None:
    await send(narrow, "small", sender="agent.modest")
    for number in range(2):
        await send(narrow, f"{number}" + "x" * 1000, sender="agent.greedy")
    await send(narrow, "y" * 1000, sender="agent.new")
    result = await send(narrow, "z" * 1000, sender="agent.new")
    assert result.delivered_to == 1
    kept = [(one.sender, one.payload[0]) for one in await narrow.lease("agent.a")]
    assert kept == [
        ("agent.modest", "s"),
        ("agent.greedy", "1"),
        ("agent.new", "y"),
        ("agent.new", "z"),
    ]


async def fill(relay: Relay) -> str:
    """Fill the inbox of `agent.a`; return the id of the message to be evicted first."""
    first = await send(relay, "x" * 1000, sender="agent.greedy")
    for _ in range(2):
        await send(relay, "x" * 1000, sender="agent.greedy")
    return first.message_id


async def test_an_eviction_is_never_silent(narrow: Relay, data: Path) -> None:
    heard: list[Signal] = []
    narrow.on_signal("agent.greedy", lambda subject, signal: heard.append(signal))
    victim = await fill(narrow)
    await send(narrow, "y" * 1000)
    (event,) = events(data, "evicted")
    (dead_letter,) = await narrow.dead_letters()
    (signal,) = heard
    assert (event["id"], event["endpoint"], event["sender"]) == (victim, "agent.a", "agent.greedy")
    assert (dead_letter.envelope.id, dead_letter.reason) == (victim, event["reason"])
    assert (signal.state, signal.endpoint_subject) == ("evicted", "agent.a")
    assert signal.data["message_id"] == victim


async def test_as_many_make_room_as_are_needed(narrow: Relay) -> None:
    await fill(narrow)
    assert (await send(narrow, "y" * 2000)).delivered_to == 1
    assert len(await narrow.dead_letters()) == 2


async def test_a_message_larger_than_the_inbox_evicts_nothing(narrow: Relay) -> None:
    await fill(narrow)
    assert reasons(await send(narrow, "y" * 5000)) == [Reason.BACKPRESSURE]
    assert pending(narrow) == 3


async def test_messages_in_flight_are_never_evicted(narrow: Relay) -> None:
    await fill(narrow)
    await narrow.lease("agent.a")
    result = await send(narrow, "y" * 1000)
    assert reasons(result) == [Reason.BACKPRESSURE]
    assert await narrow.dead_letters() == []


async def test_a_message_rejected_by_the_quota_evicts_nothing(start) -> None:
    relay = await start(
        qos=QosConfig(enabled=True, tier1=TierLimits(2, WIDE), inbox_max_bytes=2600)
    )
    relay.register_endpoint("agent.a")
    for _ in range(2):
        await send(relay, "x" * 1000)
    assert reasons(await send(relay, "x" * 1000)) == [Reason.QUOTA_EXCEEDED]
    assert pending(relay) == 2


async def test_a_probe_for_which_no_room_can_be_made_gives_its_slot_back(
    start, clock: ManualClock
) -> None:
    relay = await start(
        qos=QosConfig(enabled=True, tier1=TierLimits(100, WIDE), inbox_max_bytes=2600),
        circuit_breaker=CircuitBreakerConfig(failure_threshold=1, cooldown_ms=1000),
    )
    relay.register_endpoint("agent.a")

    def fail(envelope: object) -> None:
        raise ValueError

    stop = relay.subscribe("agent.a", fail)
    await send(relay)
    await relay.idle()
    stop()
    for dead_letter in await relay.dead_letters():
        await relay.redrive(dead_letter.envelope.id)
    (held,) = await relay.lease("agent.a")
    clock.advance_ms(1000)
    assert reasons(await send(relay, "x" * 2300)) == [Reason.BACKPRESSURE]
    await relay.ack("agent.a", held.id)
    assert (await send(relay, "x" * 2000)).delivered_to == 1


async def test_overflow_may_be_set_to_reject_instead(start) -> None:
    relay = await start(
        qos=QosConfig(
            enabled=True, tier1=TierLimits(100, WIDE), inbox_max_bytes=4200, overflow="reject"
        )
    )
    relay.register_endpoint("agent.a")
    await fill(relay)
    result = await send(relay, "y" * 1000)
    assert reasons(result) == [Reason.BACKPRESSURE]
    assert "inbox bytes full" in result.rejected[0].detail
    assert await relay.dead_letters() == []


async def test_a_full_mailbox_is_reported_before_the_quota(start) -> None:
    relay = await start(qos=TIERS, backpressure=BackpressureConfig(max_mailbox_size=1))
    relay.register_endpoint("agent.a")
    await send(relay)
    assert reasons(await send(relay)) == [Reason.BACKPRESSURE]


async def test_an_evicted_message_can_be_put_back(narrow: Relay) -> None:
    victim = await fill(narrow)
    await send(narrow, "y" * 1000)
    assert await narrow.redrive(victim) == 1
    assert len(payloads(await narrow.lease("agent.a"))) == 4


async def test_a_message_evicted_before_it_was_durable_is_a_complete_dead_letter(
    start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "payloads_in_memory_max_bytes", 10_000)
    relay = await start(
        qos=QosConfig(enabled=True, tier1=TierLimits(100, WIDE), inbox_max_bytes=20_000)
    )
    endpoint = relay.register_endpoint("agent.a")
    await relay.publish_many(drafts(30, payload="x" * 1_000))
    await relay.idle()
    dead_letters = await relay.dead_letters()
    assert len(dead_letters) > 10
    assert all(len(dead_letter.envelope.payload) == 1_000 for dead_letter in dead_letters)
    assert files(endpoint)["failed"] == sorted(
        dead_letter.envelope.id for dead_letter in dead_letters
    )


async def test_evict_heaviest_ignores_tiers_as_in_older_journals(start) -> None:
    relay = await start(
        qos=QosConfig(
            enabled=True,
            tier1=TierLimits(100, WIDE),
            inbox_max_bytes=4200,
            overflow="evict_heaviest",
        )
    )
    relay.register_endpoint("agent.a")
    await send(relay, "hello", to="agent.greedy", sender="agent.a")
    await fill(relay)
    assert (await send(relay, "y" * 1000)).delivered_to == 1
    assert [one.envelope.sender for one in await relay.dead_letters()] == ["agent.greedy"]
