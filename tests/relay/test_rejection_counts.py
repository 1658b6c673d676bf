"""Recent rejections by sender and reason: counted at once, forgotten after minutes, bounded."""

from tests.relay.conftest import Start
from waypost import RateLimitConfig, Relay
from waypost.policy.bounds import rejected_senders_in_memory_max
from waypost.relay.state.rejection_counts import PERIOD_US, UNLISTED, RejectionCounts
from waypost.testing import ManualClock

LIMIT = RateLimitConfig(max_per_window=2)


async def flood(relay: Relay, sender: str, count: int) -> None:
    for number in range(count):
        await relay.publish("agent.a", number, sender=sender)


async def test_each_rejection_of_a_flood_is_counted_at_once(start: Start) -> None:
    relay = await start(rate_limit=LIMIT)
    relay.register_endpoint("agent.a")
    await flood(relay, "agent.loud", 102)
    await flood(relay, "agent.slow", 3)
    found = [(one.sender, one.reasons) for one in relay.inspect().rejections()]
    assert found == [("agent.loud", {"rate_limited": 100}), ("agent.slow", {"rate_limited": 1})]


async def test_a_rejection_that_is_kept_as_a_dead_letter_counts_too(start: Start) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await relay.publish("agent.a", 1, sender="agent.b", budget={"hop_count": 5, "max_hops": 5})
    assert [one.reasons for one in relay.inspect().rejections()] == [{"budget_exceeded": 1}]


async def test_rejections_are_forgotten_after_minutes(start: Start, clock: ManualClock) -> None:
    relay = await start(rate_limit=LIMIT)
    relay.register_endpoint("agent.a")
    await flood(relay, "agent.loud", 3)
    clock.advance_ms(PERIOD_US // 1000)
    assert [one.total for one in relay.inspect().rejections()] == [1]
    clock.advance_ms(PERIOD_US // 1000)
    assert relay.inspect().rejections() == []


def test_many_names_do_not_displace_the_sender_with_the_most_rejections() -> None:
    counts = RejectionCounts()
    for _ in range(3):
        counts.add("agent.loud", "rate_limited", 1)
    names = 2 * rejected_senders_in_memory_max
    for number in range(names):
        counts.add(f"agent.n{number}", "access_denied", 1)
    found = counts.recent(1)
    assert len(found) <= rejected_senders_in_memory_max + 1
    by_sender = {one.sender: one.reasons for one in found}
    assert by_sender["agent.loud"] == {"rate_limited": 3}
    assert UNLISTED in by_sender
    assert sum(one.total for one in found) == names + 3, "no rejection is left out"


def test_a_line_from_before_the_last_minutes_is_not_counted() -> None:
    counts = RejectionCounts()
    counts.add("agent.new", "rate_limited", 10 * PERIOD_US)
    counts.add("agent.old", "rate_limited", PERIOD_US, 500)
    assert [one.sender for one in counts.recent(10 * PERIOD_US)] == ["agent.new"]
