"""What a plain replay says, to hold a backtest against."""

from collections import Counter
from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tests.pipeline.replay.conftest import Past
from tests.pipeline.replay.sequential import Decision, replay
from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.replay.backtest import Backtest


class Older(Lake):
    """The same, of relays that did not tell yet what their mailboxes weighed."""

    def read(self, table: str, schema: StructType, days: Iterable[str] | None = None) -> DataFrame:
        rows = super().read(table, schema, days)
        return rows.withColumn("depth_bytes", F.lit(None).cast("bigint"))


def judged_plainly(past: Past, changes: bytes | None) -> dict[tuple[str, int], Decision]:
    return {
        (relay, one.seq): one
        for relay, events in past.events.items()
        for one in replay(events, changes)
    }


def agrees(result: Backtest, expected: dict[tuple[str, int], Decision]) -> None:
    moves = Counter((one.old_reason, one.new_reason) for one in expected.values())
    differing = {move: count for move, count in moves.items() if move[0] != move[1]}
    by_reason: dict[str, dict[str, int]] = {}
    for (old, new), count in differing.items():
        by_reason.setdefault(old or "accepted", {})[new or "accepted"] = count
    assert result.by_reason == by_reason
    assert result.messages == len(expected)
    assert result.differences == sum(differing.values()) == sum(result.by_tier.values())
