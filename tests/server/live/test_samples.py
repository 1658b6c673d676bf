"""Samples, percentiles and changed rows."""

from collections import Counter

import pytest

from waypost.server.live.rows import InboxRow, RowTable
from waypost.server.live.samples import IntervalCounter, percentile_ms


@pytest.mark.parametrize(
    ("waits_us", "p50", "p95"),
    [
        ([], None, None),
        ([3000], 3.0, 3.0),
        ([1000, 2000], 1.0, 2.0),
        (list(range(1000, 101_000, 1000)), 50.0, 95.0),
    ],
)
def test_percentiles_are_values_that_occurred(
    waits_us: list[int], p50: float | None, p95: float | None
) -> None:
    assert percentile_ms(waits_us, 50) == p50
    assert percentile_ms(waits_us, 95) == p95


class Counters:
    """Counts as a relay keeps them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.waits_us: list[int] = []

    def take_wait_times_us(self) -> list[int]:
        waits, self.waits_us = self.waits_us, []
        return waits


def test_a_sample_counts_only_events_since_the_last() -> None:
    relay = Counters()
    relay.counts.update({"accepted": 10, "rejected.rate_limited": 4})
    relay.waits_us.append(99)
    counter = IntervalCounter(relay, 0)
    relay.counts.update({"accepted": 3, "rejected.rate_limited": 2, "acked": 1})
    relay.waits_us.append(5000)
    sample = counter.take(2_000_000)
    assert (sample.accepted, sample.acked, sample.rejected) == (3, 1, {"rate_limited": 2})
    assert (sample.seconds, sample.waits, sample.wait_p95_ms) == (2.0, 1, 5.0)
    nothing = counter.take(3_000_000)
    assert (nothing.accepted, nothing.rejected, nothing.wait_p50_ms) == (0, {}, None)


def inbox(subject: str, pending: int) -> InboxRow:
    return InboxRow(subject, pending, 0, 0, 0, 0, 0.0, 0, None, False, False)


def test_a_table_reports_changed_rows_and_removed_subjects() -> None:
    table: RowTable[InboxRow] = RowTable()
    table.replace([inbox("a", 1), inbox("b", 1), inbox("c", 1)], 3, 1)
    table.replace([inbox("a", 1), inbox("b", 2)], 2, 2)
    changes = table.changes()
    assert b'"rows":[{"subject":"b","pending":2' in changes
    assert b'"gone":["c"]' in changes
    assert b'"subject":"a"' not in changes
    assert b'"subject":"a"' in table.whole()
    assert b'"whole":true' in table.whole()
