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
    changed = {key: one for key, one in expected.items() if one.old_reason != one.new_reason}
    moves = Counter((one.old_reason, one.new_reason) for one in changed.values())
    by_reason: dict[str, dict[str, int]] = {}
    for (old, new), count in moves.items():
        by_reason.setdefault(old or "accepted", {})[new or "accepted"] = count
    assert result.by_reason == by_reason
    assert result.messages == len(expected)
    assert result.differences == len(changed)
    assert result.by_tier == Counter(str(one.tier) for one in changed.values())
    senders = Counter((relay, one.sender) for (relay, _), one in changed.items())
    most = sorted(senders.items(), key=lambda one: (-one[1], one[0]))
    found = [((one.relay, one.sender), one.differences) for one in result.by_sender]
    assert found == most[:20]
