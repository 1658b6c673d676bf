"""The thresholds of anomalies: reported just above, not just below."""

from datetime import date, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.tables import anomalies, rejections, senders

DAY = date(2026, 1, 20)


def _day(sender: str, ago: int = 0, **numbers: int) -> dict[str, Any]:
    zeros = {field.name: 0 for field in senders.SCHEMA if field.dataType.typeName() == "long"}
    return {**zeros, "day": DAY - timedelta(ago), "relay": "r", "sender": sender, **numbers}


def _usual(sender: str, days: int, busiest: int, first_ago: int = 1) -> list[dict[str, Any]]:
    """Return earlier days, each with an answer, so that only bursts can be found."""
    return [
        _day(sender, ago, publishes=busiest, answers=1, busiest_minute=busiest)
        for ago in range(first_ago, first_ago + days)
    ]


DAYS = [
    _day("limited", publishes=199, rejected=100, rate_limited=100, answers=1),
    _day("half-limited", publishes=200, rejected=100, rate_limited=100, answers=1),
    _day("little-limited", publishes=99, rejected=99, rate_limited=99, answers=1),
    _day("counted", publishes=900, rejected=400, access_denied=400, answers=1),
    _day("unanswered", publishes=50, recipients=5),
    _day("unanswered-by-few", publishes=199, recipients=4),
    _day("insistent", publishes=4120, recipients=1),
    _day("answered", publishes=4120, recipients=12, answers=1),
    _day("answered-before", publishes=4120, recipients=12),
    _day("answered-before", ago=14, publishes=1, recipients=1, answers=1),
    _day("answered-long-ago", publishes=4120, recipients=12),
    _day("answered-long-ago", ago=15, publishes=1, recipients=1, answers=1),
    _day("_relay", publishes=4120, recipients=12),
    _day("bursting", publishes=60, busiest_minute=50, answers=1),
    *_usual("bursting", days=3, busiest=10),
    _day("as-ever", publishes=60, busiest_minute=50, answers=1),
    *_usual("as-ever", days=3, busiest=11),
    _day("small-burst", publishes=60, busiest_minute=49, answers=1),
    *_usual("small-burst", days=3, busiest=1),
    _day("new-here", publishes=60, busiest_minute=50, answers=1),
    *_usual("new-here", days=2, busiest=1),
    _day("long-away", publishes=60, busiest_minute=50, answers=1),
    *_usual("long-away", days=3, busiest=1, first_ago=15),
]


def _over_budget(sender: str, *threads: str) -> list[dict[str, Any]]:
    """Return messages to agent.b in conversations that had no calls left."""
    shared = {"day": DAY, "relay": "r", "kind": "rejected", "reason": "budget_exceeded"}
    return [
        {
            **shared,
            "seq": seq,
            "id": f"{sender}-{seq}",
            "thread": thread,
            "sender": sender,
            "endpoint": "agent.b",
            "count": 1,
            "ancestor_chain": ["agent.b"],
            "answer": True,
            "call_budget_remaining": 0,
        }
        for seq, thread in enumerate(threads)
    ]


ARRIVALS = [*_over_budget("talking", "t1", "t2", "t2"), *_over_budget("talked", "t3", "t4")]


def _frame(spark: SparkSession, rows: list[dict[str, Any]], schema: Any) -> DataFrame:
    return spark.createDataFrame([tuple(map(row.get, schema.names)) for row in rows], schema)


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[tuple[str, str], dict[str, Any]]:
    counted = {"day": DAY, "relay": "r", "sender": "counted", "count": 400, "detail": ""}
    rows = anomalies.build(
        _frame(spark, DAYS, senders.SCHEMA),
        _frame(spark, [counted], rejections.SCHEMA),
        _frame(spark, ARRIVALS, EVENTS),
    ).where(f"day = date'{DAY}'")
    return {(row["sender"], row["kind"]): row.asDict() for row in rows.collect()}


def test_only_senders_past_a_threshold_are_anomalies(found: dict[tuple[str, str], Any]) -> None:
    assert set(found) == {
        ("limited", "flood"),
        ("counted", "flood"),
        ("unanswered", "one_way"),
        ("insistent", "one_way"),
        ("answered-long-ago", "one_way"),
        ("bursting", "burst"),
        ("talking", "exhausted"),
    }


def test_conversations_that_run_into_their_limit_again_and_again_are_named(
    found: dict[tuple[str, str], Any],
) -> None:
    talking = found["talking", "exhausted"]
    assert talking["why"] == (
        "3 messages it sent to agent.b came after the last call of 2 conversations; the last of"
        " them is thread t2"
    )
    assert (talking["endpoint"], talking["observed"]) == ("agent.b", 3.0)


def test_a_flood_states_its_rejections(found: dict[tuple[str, str], Any]) -> None:
    limited, counted = found["limited", "flood"], found["counted", "flood"]
    assert limited["why"] == "tried to send 199 messages; 100 were rejected, 100 by its rate limit"
    assert counted["why"] == "tried to send 900 messages; 400 were rejected"
    assert (limited["observed"], limited["expected"]) == (100.0, 99.5)


def test_one_way_traffic_states_messages_and_recipients(found: dict[tuple[str, str], Any]) -> None:
    insistent = found["insistent", "one_way"]
    assert insistent["why"] == "sent 4,120 messages to 1 agent and got no answer"
    assert (insistent["observed"], insistent["expected"]) == (4120.0, 0.0)


def test_a_burst_is_compared_with_the_median_of_earlier_days(
    found: dict[tuple[str, str], Any],
) -> None:
    burst = found["bursting", "burst"]
    assert burst["why"] == "sent 50 messages in one minute; its busiest minute usually has 10"
    assert (burst["observed"], burst["expected"]) == (50.0, 10.0)
