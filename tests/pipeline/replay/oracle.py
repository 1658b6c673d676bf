"""Compares a backtest with the sequential replay."""

from collections import Counter
from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tests.pipeline.replay.conftest import Recording
from tests.pipeline.replay.sequential import Decision, replay
from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.replay.backtest import Backtest


class _OlderLake(Lake):
    def read(self, table: str, schema: StructType, days: Iterable[str] | None = None) -> DataFrame:
        rows = super().read(table, schema, days)
        return rows.withColumn("depth_bytes", F.lit(None).cast("bigint"))


def without_depth_bytes(lake: Lake) -> Lake:
    """Return the lake as if its journals were from before `depth_bytes` was recorded."""
    return _OlderLake(lake.spark, lake.path, lake.manifest)


def replay_sequentially(
    recording: Recording, changes: bytes | None
) -> dict[tuple[str, int], Decision]:
    """Return the decisions about all arrivals, by relay and seq."""
    return {
        (relay, one.seq): one
        for relay, events in recording.events.items()
        for one in replay(events, changes)
    }


def assert_agrees(result: Backtest, expected: dict[tuple[str, int], Decision]) -> None:
    """Check every number of a backtest."""
    changed = {key: one for key, one in expected.items() if one.old_reason != one.new_reason}
    transitions = Counter((one.old_reason, one.new_reason) for one in changed.values())
    by_reason: dict[str, dict[str, int]] = {}
    for (old, new), count in transitions.items():
        by_reason.setdefault(old or "accepted", {})[new or "accepted"] = count
    assert result.by_reason == by_reason
    assert result.messages == len(expected)
    assert result.differences == len(changed)
    assert result.by_tier == Counter(str(one.tier) for one in changed.values())
    senders = Counter((relay, one.sender) for (relay, _), one in changed.items())
    most = sorted(senders.items(), key=lambda one: (-one[1], one[0]))
    found = [((one.relay, one.sender), one.differences) for one in result.by_sender]
    assert found == most[:20]
