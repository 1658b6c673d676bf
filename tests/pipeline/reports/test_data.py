"""What the lake is asked, and that the answers are right."""

from tests.pipeline.reports.small_lake import HOSTILE, at_ms
from waypost.pipeline.reports.data import (
    Facts,
    InboxSender,
    Percentiles,
    PressureInbox,
    ReasonTotal,
    TierTotal,
    TrafficStep,
)
from waypost.pipeline.reports.incidents import BreakerSpan, ConnectedAgent, DeadInbox


def test_scope_and_period_cover_all_relays(small_facts: Facts) -> None:
    scope = small_facts.scope
    assert (scope.relays, scope.senders, scope.inboxes, scope.days) == (["north", "south"], 2, 2, 1)
    assert small_facts.period is not None
    assert (small_facts.period.first_ms, small_facts.period.last_ms) == (at_ms(0), at_ms(60))
    assert small_facts.period.step_ms == 60_000


def test_traffic_adds_up_relays_and_knows_the_busiest_minute(small_facts: Facts) -> None:
    traffic = small_facts.traffic
    assert traffic.steps[1] == TrafficStep(at_ms(3), 67, 7, 1, 59, 7, 0, 700)
    assert [one.at_ms for one in traffic.steps] == [at_ms(0), at_ms(3), at_ms(59)]
    assert traffic.total == TrafficStep(at_ms(0), 74, 13, 2, 59, 13, 0, 1_300)
    assert (traffic.busiest_minute_ms, traffic.busiest_publishes) == (at_ms(3), 67)


def test_a_counted_line_is_as_many_rejections_as_it_says(small_facts: Facts) -> None:
    first, second, _ = small_facts.rejections.reasons
    assert first == ReasonTotal("rate_limited", 55, 1, 0, HOSTILE)
    assert second == ReasonTotal("backpressure", 2, 2, 2, "backpressure")
    steps = {(one.at_ms, one.reason): one.rejections for one in small_facts.rejections.steps}
    assert steps[at_ms(2), "rate_limited"] == 50
    assert steps[at_ms(3), "rate_limited"] == 5


def test_percentiles_are_of_messages_that_were_handed_out(small_facts: Facts) -> None:
    latency = small_facts.latency
    assert latency.overall == Percentiles(101, 51.0, 96.0, 100.0, 56.0, 101.0, 105.0)
    assert latency.steps[0].wait == Percentiles(100, 50.0, 95.0, 99.0, 55.0, 100.0, 104.0)
    assert latency.step_ms == 300_000  # few messages: longer steps than those of traffic
    assert [one.at_ms for one in latency.steps] == [at_ms(0), at_ms(5)]


def test_inboxes_are_ranked_by_the_time_spent_waiting_in_them(small_facts: Facts) -> None:
    waited = [(one.endpoint, one.waited_ms) for one in small_facts.latency.inboxes]
    assert waited == [("agent.a", 5_050.0), ("agent.b", 4_000.0)]
    assert small_facts.latency.waited_ms == 9_050.0


def test_pressure_names_the_first_of_the_fullest_minutes(small_facts: Facts) -> None:
    pressure = small_facts.pressure
    assert pressure.inboxes[0] == PressureInbox("north", "agent.a", 0.95, at_ms(4), 95, 100, 3)
    assert pressure.warned == 1
    cells = [(one.at_ms, one.pressure) for one in pressure.steps if one.inbox == 1]
    assert cells == [(at_ms(3), 0.1)]


def test_a_rejection_that_keeps_the_message_is_one_arrival_of_its_tier(small_facts: Facts) -> None:
    # Tier 1: two messages, one of them kept by a budget refusal, and one refusal by backpressure.
    assert small_facts.tiers == [TierTotal(1, 3, 2), TierTotal(3, 101, 1)]


def test_senders_of_an_inbox_are_added_up_over_days_with_their_last_tier(
    small_facts: Facts,
) -> None:
    inbox = small_facts.senders.inboxes[0]
    assert (inbox.endpoint, inbox.arrivals, inbox.more) == ("agent.a", 16, 2)
    assert inbox.senders[0] == InboxSender("agent.web", 10, 2, 3)
    assert [one.sender for one in small_facts.senders.senders] == ["agent.flood", "agent.web"]


def test_a_breaker_that_did_not_close_is_open_until_the_end(small_facts: Facts) -> None:
    still, closed = small_facts.breakers.breakers
    assert (still.endpoint, still.open_ms, still.last_state) == ("agent.b", 600_000.0, "OPEN")
    assert still.spans == [BreakerSpan(at_ms(50), None, "OPEN")]
    assert (closed.opened, closed.open_ms, closed.last_state) == (1, 30_000.0, "CLOSED")
    assert [one.state for one in closed.spans] == ["OPEN", "HALF_OPEN"]
    assert small_facts.breakers.opened == 2


def test_dead_letters_are_counted_by_reason_and_by_inbox(small_facts: Facts) -> None:
    dead = small_facts.dead_letters
    assert (dead.letters, dead.waiting, dead.redriven, dead.purged) == (9, 6, 3, 0)
    assert [(one.reason, one.letters, one.inboxes) for one in dead.reasons] == [
        (HOSTILE, 6, 2),
        ("time to live is over", 3, 1),
    ]
    assert dead.inboxes[0] == DeadInbox("north", "agent.b", 5, 3)


def test_a_loop_of_several_days_is_one_loop(small_facts: Facts) -> None:
    (loop,) = small_facts.oddities.loops
    assert (loop.times, loop.last_ms) == (17, at_ms(16))


def test_an_anomaly_is_told_as_on_its_worst_day(small_facts: Facts) -> None:
    (anomaly,) = small_facts.oddities.anomalies
    assert (anomaly.why, anomaly.days) == ("was refused 55 times", 2)
    assert anomaly.worst_day_ms == at_ms(10 * 60)


def test_connections_that_have_not_ended_are_counted_apart(small_facts: Facts) -> None:
    found = small_facts.connections
    assert (found.connections, found.still, found.median_ms) == (3, 1, 120_000.0)
    assert found.agents[0] == ConnectedAgent("north", "agent.a", 2, 360_000.0, 0)
    assert [one.at_ms for one in found.steps] == [at_ms(1), at_ms(5), at_ms(6)]
