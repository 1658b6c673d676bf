"""The queries of a report, on a lake with known results."""

from typing import Any

from pyspark.sql import SparkSession

from tests.pipeline.reports.small_lake import HOSTILE, SMALL, LakeInMemory, at, at_ms
from waypost.pipeline.reports.data import (
    AgentConnections,
    BreakerSpan,
    DeadInbox,
    InboxSender,
    Percentiles,
    PressureInbox,
    ReasonTotal,
    ReportData,
    TierTotal,
    TrafficStep,
    UnackedInbox,
)
from waypost.pipeline.reports.queries import query_report_data


def test_scope_and_period_cover_all_relays(small_report: ReportData) -> None:
    scope = small_report.scope
    assert (scope.relays, scope.senders, scope.inboxes, scope.days) == (["north", "south"], 2, 2, 1)
    assert small_report.period is not None
    assert (small_report.period.first_ms, small_report.period.last_ms) == (at_ms(0), at_ms(60))
    assert small_report.period.step_ms == 60_000


def test_traffic_sums_all_relays_and_finds_the_busiest_minute(small_report: ReportData) -> None:
    traffic = small_report.traffic
    assert traffic.steps[1] == TrafficStep(at_ms(3), 67, 7, 1, 59, 7, 0, 700)
    assert [one.at_ms for one in traffic.steps] == [at_ms(0), at_ms(3), at_ms(59)]
    assert traffic.total == TrafficStep(at_ms(0), 74, 13, 2, 59, 13, 0, 1_300)
    assert (traffic.busiest_minute_ms, traffic.busiest_publishes) == (at_ms(3), 67)


def test_a_counted_event_is_as_many_rejections_as_its_count(small_report: ReportData) -> None:
    first, second, _ = small_report.rejections.reasons
    assert first == ReasonTotal("rate_limited", 55, 1, 0, HOSTILE)
    assert second == ReasonTotal("backpressure", 2, 2, 2, "backpressure")
    steps = {(one.at_ms, one.reason): one.rejections for one in small_report.rejections.steps}
    assert steps[at_ms(2), "rate_limited"] == 50
    assert steps[at_ms(3), "rate_limited"] == 5


def test_percentiles_cover_delivered_messages_only(small_report: ReportData) -> None:
    latency = small_report.latency
    assert latency.overall == Percentiles(101, 51.0, 96.0, 100.0, 56.0, 101.0, 105.0)
    assert latency.steps[0].wait == Percentiles(100, 50.0, 95.0, 99.0, 55.0, 100.0, 104.0)
    assert latency.step_ms == 300_000  # few messages: longer steps than those of traffic
    assert [one.at_ms for one in latency.steps] == [at_ms(0), at_ms(5)]


def test_inboxes_are_ranked_by_their_total_waiting_time(small_report: ReportData) -> None:
    waited = [(one.endpoint, one.waited_ms) for one in small_report.latency.inboxes]
    assert waited == [("agent.a", 5_050.0), ("agent.b", 4_000.0)]
    assert small_report.latency.waited_ms == 9_050.0


def test_pressure_names_the_first_of_the_fullest_minutes(small_report: ReportData) -> None:
    pressure = small_report.pressure
    assert pressure.inboxes[0] == PressureInbox("north", "agent.a", 0.95, at_ms(4), 95, 100, 3)
    assert pressure.warned == 1
    cells = [(one.at_ms, one.pressure) for one in pressure.steps if one.inbox == 1]
    assert cells == [(at_ms(3), 0.1)]


def test_a_rejection_with_a_dead_letter_is_one_arrival_of_its_tier(
    small_report: ReportData,
) -> None:
    # Tier 1: two messages, one of them dead-lettered by its budget, and one backpressure rejection.
    assert small_report.tiers == [TierTotal(1, 3, 2), TierTotal(3, 101, 1)]


def test_senders_of_an_inbox_are_summed_over_days_with_their_last_tier(
    small_report: ReportData,
) -> None:
    inbox = small_report.senders.inboxes[0]
    assert (inbox.endpoint, inbox.arrivals, inbox.more) == ("agent.a", 16, 2)
    assert inbox.senders[0] == InboxSender("agent.web", 10, 2, 3)
    assert [one.sender for one in small_report.senders.senders] == ["agent.flood", "agent.web"]


def test_a_breaker_that_did_not_close_is_open_until_the_end(small_report: ReportData) -> None:
    still_open, closed = small_report.breakers.breakers
    assert (still_open.endpoint, still_open.open_ms, still_open.last_state) == (
        "agent.b",
        600_000.0,
        "OPEN",
    )
    assert still_open.spans == [BreakerSpan(at_ms(50), None, "OPEN")]
    assert (closed.opened, closed.open_ms, closed.last_state) == (1, 30_000.0, "CLOSED")
    assert [one.state for one in closed.spans] == ["OPEN", "HALF_OPEN"]
    assert small_report.breakers.opened == 2


def test_a_breaker_that_opens_again_after_each_probe_is_one_span(spark: SparkSession) -> None:
    moves: list[dict[str, Any]] = []
    before = "CLOSED"
    for number in range(60):
        opened, probed = at(number / 2), at(number / 2 + 0.499)
        of_breaker = {"relay": "north", "endpoint": "agent.a"}
        for when, after, lasted_ms in ((opened, "OPEN", 29_940.0), (probed, "HALF_OPEN", 60.0)):
            change = {"at": when, "before": before, "after": after, "lasted_ms": lasted_ms}
            moves.append({"seq": len(moves), **of_breaker, **change})
            before = after
    report = query_report_data(LakeInMemory(spark, {**SMALL, "breakers": moves}))
    (found,) = report.breakers.breakers
    assert found.spans[0] == BreakerSpan(at_ms(0), at_ms(29.999), "OPEN")
    assert ([one.state for one in found.spans], found.spans_more) == (["OPEN", "HALF_OPEN"], 0)


def test_dead_letters_are_counted_by_reason_and_by_inbox(small_report: ReportData) -> None:
    dead = small_report.dead_letters
    assert (dead.messages, dead.waiting, dead.redriven, dead.purged) == (9, 6, 3, 0)
    assert [(one.reason, one.messages, one.inboxes) for one in dead.reasons] == [
        (HOSTILE, 6, 2),
        ("time to live is over", 3, 1),
    ]
    assert dead.inboxes[0] == DeadInbox("north", "agent.b", 5, 3)


def test_a_loop_of_several_days_is_one_loop(small_report: ReportData) -> None:
    (loop,) = small_report.anomalies.loops
    assert (loop.times, loop.last_ms) == (17, at_ms(16))


def test_an_anomaly_is_described_by_its_worst_day(small_report: ReportData) -> None:
    (anomaly,) = small_report.anomalies.anomalies
    assert (anomaly.why, anomaly.days) == ("was rejected 55 times", 2)
    assert anomaly.worst_day_ms == at_ms(10 * 60)


def test_open_connections_are_counted_separately(small_report: ReportData) -> None:
    found = small_report.connections
    assert (found.connections, found.open, found.median_ms) == (3, 1, 120_000.0)
    assert found.agents[0] == AgentConnections("north", "agent.a", 2, 360_000.0, 0)
    assert [one.at_ms for one in found.steps] == [at_ms(1), at_ms(5), at_ms(6)]


def test_inboxes_with_unacknowledged_messages_are_named_with_the_oldest(
    small_report: ReportData,
) -> None:
    latency = small_report.latency
    assert latency.unacked == [UnackedInbox("north", "agent.b", 1, 0, at_ms(59))]
    assert latency.unacked_more == 0
