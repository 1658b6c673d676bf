"""Tables for messages with unusual histories."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from tests.pipeline.tables.conftest import BuiltLake
from tests.pipeline.tables.journal_by_hand import at
from waypost.pipeline.tables import (
    anomalies,
    breakers,
    loops,
    messages,
    rejections,
    senders,
    traffic,
)

Rows = list[dict[str, Any]]


def rows_of(built: BuiltLake, table: Any) -> Rows:
    return [row.asDict() for row in built.lake.read(table.NAME, table.SCHEMA).collect()]


@pytest.fixture(scope="module")
def messages_by_id(by_hand: BuiltLake) -> dict[str, Rows]:
    """Return the rows of `messages` by id, in order of arrival."""
    found: dict[str, Rows] = {}
    for row in sorted(rows_of(by_hand, messages), key=lambda row: row["seq"]):
        found.setdefault(row["id"], []).append(row)
    return found


def instant(day: int, clock: str) -> datetime:
    return (
        datetime.fromtimestamp(at(day, clock) // 1_000_000, UTC).astimezone().replace(tzinfo=None)
    )


def check(row: dict[str, Any], **expected: Any) -> None:
    assert {name: row[name] for name in expected} == expected


def test_a_returned_message_counts_both_attempts(messages_by_id: dict[str, Rows]) -> None:
    (plain,) = messages_by_id["plain"]
    check(plain, state="acked", attempts=2, returns=1, wait_ms=2000.0, total_ms=10_000.0)


def test_the_times_of_a_scheduled_message_begin_when_it_was_due(
    messages_by_id: dict[str, Rows],
) -> None:
    (soon,) = messages_by_id["soon"]
    check(soon, state="acked", due_at=instant(4, "09:00:00"), wait_ms=2000.0, total_ms=5000.0)
    (never,) = messages_by_id["never"]
    check(never, state="cancelled", finished_at=instant(3, "11:30:00"), reason=None)
    (one_day,) = messages_by_id["one day"]
    check(one_day, state="scheduled", finished_at=None, wait_ms=None)
    assert messages_by_id["slow"][0]["due_at"] is None


def test_a_message_to_two_mailboxes_is_two_rows(messages_by_id: dict[str, Rows]) -> None:
    here, there = messages_by_id["wide"]
    assert [here["endpoint"], there["endpoint"]] == ["agent.b", "agent.c"]
    assert [here["total_ms"], there["total_ms"]] == [1000.0, 3000.0]


def test_a_redriven_message_is_pending_again_and_keeps_its_dead_letter_reason(
    messages_by_id: dict[str, Rows],
) -> None:
    (broken,) = messages_by_id["broken"]
    check(broken, day=date(2026, 1, 3), state="leased", redrives=1, attempts=2)
    check(broken, reason=None, finished_at=None, total_ms=None, died_of="handler failed")


def test_a_purged_dead_letter_keeps_its_reason(messages_by_id: dict[str, Rows]) -> None:
    (thrown,) = messages_by_id["thrown"]
    check(thrown, state="purged", reason="room", finished_at=instant(1, "10:02:00"))
    check(thrown, died_at=instant(1, "10:01:00"))


def test_a_repeated_id_is_two_messages(messages_by_id: dict[str, Rows]) -> None:
    rejected, stored = messages_by_id["again"]
    check(rejected, state="purged", attempts=0, finished_at=instant(1, "15:00:00"))
    assert rejected["reason"].startswith("cycle detected")
    check(stored, state="acked", attempts=1, total_ms=2000.0, died_at=None, reason=None)


def test_events_before_an_id_repeats_stay_with_the_first_message(
    messages_by_id: dict[str, Rows],
) -> None:
    over, open_still = messages_by_id["twice"]
    check(over, state="acked", attempts=1, wait_ms=1000.0, total_ms=4000.0)
    check(open_still, state="leased", attempts=1, wait_ms=2000.0, total_ms=None)


def test_an_id_repeated_on_a_later_day_purges_the_earlier_dead_letter(
    messages_by_id: dict[str, Rows],
) -> None:
    rejected, stored = messages_by_id["late"]
    check(rejected, day=date(2026, 1, 2), state="purged", finished_at=instant(4, "12:00:00"))
    check(stored, day=date(2026, 1, 4), state="pending", finished_at=None)


def test_events_of_a_day_that_is_not_rebuilt_stay_with_its_message(
    messages_by_id: dict[str, Rows],
) -> None:
    over, waiting = messages_by_id["resent"]
    check(over, day=date(2026, 1, 1), state="acked", finished_at=instant(2, "07:00:00"))
    check(waiting, day=date(2026, 1, 4), state="pending", finished_at=None, wait_ms=None)


def test_a_message_that_expires_later_stays_on_its_day_of_arrival(
    messages_by_id: dict[str, Rows],
) -> None:
    (slow,) = messages_by_id["slow"]
    check(slow, day=date(2026, 1, 3), state="expired", reason="time to live is over")
    check(slow, finished_at=instant(4, "14:00:00"), died_at=None, wait_ms=None)


def test_a_publish_without_recipient_is_in_traffic_and_not_in_messages(
    by_hand: BuiltLake, messages_by_id: dict[str, Rows]
) -> None:
    assert "nobody" not in messages_by_id
    (minute,) = [row for row in rows_of(by_hand, traffic) if row["unclaimed"]]
    check(minute, minute=instant(1, "09:02:00"), publishes=1, unclaimed=1, stored=0, bytes=0)


def test_counted_rejections_count_in_full_in_the_minute_they_happened(by_hand: BuiltLake) -> None:
    (line,) = [row for row in rows_of(by_hand, rejections) if row["count"] > 1]
    check(line, count=300, at=instant(1, "12:10:00"), reason="rate_limited")
    (minute,) = [row for row in rows_of(by_hand, traffic) if row["rejected"] == 300]
    check(minute, minute=instant(1, "12:05:00"), publishes=300)
    (flood,) = [row for row in rows_of(by_hand, senders) if row["sender"] == "agent.flood"]
    check(flood, publishes=300, rate_limited=300, busiest_minute=300, recipients=0)


def test_different_ways_into_a_loop_are_one_loop(by_hand: BuiltLake) -> None:
    first, second = sorted(rows_of(by_hand, loops), key=lambda row: row["day"])
    check(first, endpoint="agent.b", chain=["agent.b", "agent.c", "agent.b"], times=2, senders=1)
    assert first["why"] == "agent.b → agent.c → agent.b came back after 2 hops, stopped 2 times"
    assert second["why"] == "agent.b → agent.b came back after 1 hop, stopped once"


def test_loops_and_anomalies_have_a_sentence(by_hand: BuiltLake) -> None:
    found = {
        (row["day"].day, row["sender"], row["kind"], row["endpoint"]): row["why"]
        for row in rows_of(by_hand, anomalies)
    }
    flood = "tried to send 300 messages; 300 were rejected, 300 by its rate limit"
    looped = "sent to agent.b went in a loop and had to be stopped"
    assert found == {
        (1, "agent.flood", "flood", None): flood,
        (1, "agent.c", "loop", "agent.b"): f"2 messages it {looped}",
        (2, "agent.c", "loop", "agent.b"): f"1 message it {looped}",
    }


def test_a_start_of_the_relay_ends_the_state_of_a_breaker(by_hand: BuiltLake) -> None:
    (opened,) = [one for one in rows_of(by_hand, breakers) if one["endpoint"] == "agent.d"]
    assert opened["lasted_ms"] == 30 * 60_000.0
