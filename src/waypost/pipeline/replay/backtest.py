"""`backtest`: what would have been decided about every arrival, had the settings been others?"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, Lake
from waypost.pipeline.replay.notes import notes_about
from waypost.pipeline.replay.settings_timeline import Eras, read_eras
from waypost.pipeline.replay.stages import Replay
from waypost.pipeline.spark.partitioning import fit_shuffles
from waypost.policy.reasons import Reason

ACCEPTED = "accepted"
REMEMBERED = "backtest.json"
_SENDERS_SHOWN = 20


class SenderAffected(msgspec.Struct, frozen=True):
    """A sender, and how many of its arrivals would have been decided differently."""

    relay: str
    sender: str
    differences: int


class Backtest(msgspec.Struct, kw_only=True):
    """What a replay found. Reasons are those of refusals, or "accepted".

    `by_reason`: reason then → reason now → how many. `by_tier`: differences by tier as replayed.
    `refused`, `rejected_before`: all refusals by reason. `counted`: refusals in floods that the
    journal only counts; they are in none of the other numbers. `notes`: what was not replayed.
    """

    messages: int = 0
    differences: int = 0
    by_reason: dict[str, dict[str, int]] = {}
    by_tier: dict[str, int] = {}
    by_sender: list[SenderAffected] = []
    rejected_before: dict[str, int] = {}
    rejected: dict[str, int] = {}
    counted: int = 0
    settled: "Settled"
    notes: list[str] = []
    out: str | None = None


class Settled(msgspec.Struct, frozen=True):
    """How many senders and endpoints there are, and how many had to be replayed step by step."""

    senders: int = 0
    senders_replayed: int = 0
    endpoints: int = 0
    endpoints_replayed: int = 0


def backtest(
    lake: Lake, settings: bytes | None = None, out: str | None = None, *, shortcut: bool = True
) -> Backtest:
    """Replay all arrivals of `lake` with `settings`, the text of a `config.json`, laid over those
    that were in force. Without it, they are replayed as they were.

    With `out`, every decision is written there as Parquet (`DECISIONS`), over what was there.
    Without `shortcut`, also what the recorded numbers prove unchanged is replayed step by step.
    Raises `InvalidSettings` before anything is read.
    """
    fit_shuffles(lake.spark, lake.manifest.events)
    events = lake.read(EVENTS_TABLE, EVENTS)
    eras = read_eras(events, lake.manifest.relays, settings)
    replay = Replay(events, eras, shortcut=shortcut, shown=out is not None)
    try:
        result = _summed_up(replay, eras)
        if out is not None:
            replay.decisions().write.mode("overwrite").parquet(out)
            result.out = out
    finally:
        replay.close()
    return result


def remember(lake: Lake, result: Backtest) -> None:
    """Leave `result` in the lake, where the dashboard finds it, if that is on this machine."""
    directory = Path(lake.path)
    if directory.is_dir():
        fresh = directory / f".{REMEMBERED}"
        fresh.write_bytes(msgspec.json.encode(result))
        fresh.replace(directory / REMEMBERED)


def _summed_up(replay: Replay, eras: Eras) -> Backtest:
    totals = replay.totals
    before = {reason.value: totals[reason.value] for reason in Reason}
    result = Backtest(
        messages=totals["lines"],
        counted=totals["counted"],
        rejected_before={reason: lines for reason, lines in before.items() if lines},
        settled=Settled(*replay.replayed()),
        notes=notes_about(eras, totals["counted"]),
    )
    after = dict(before)
    by_sender: Counter[tuple[str, str]] = Counter()
    for row in _differences(replay.changed()):
        old, new, differences = row["old_reason"], row["new_reason"], row["differences"]
        _count(result, old, new, row["tier"], differences)
        by_sender[row["relay"], row["sender"]] += differences
        for reason, sign in ((old, -1), (new, 1)):
            if reason:
                after[reason] += sign * differences
    result.rejected = {reason: lines for reason, lines in after.items() if lines}
    most = sorted(by_sender.items(), key=lambda one: (-one[1], one[0]))[:_SENDERS_SHOWN]
    result.by_sender = [SenderAffected(*sender, differences) for sender, differences in most]
    return result


def _differences(changed: DataFrame) -> Iterator[dict[str, Any]]:
    """How often each sender's arrivals `changed` from what to what, and in which tier."""
    kinds = changed.groupBy("relay", "sender", "old_reason", "new_reason", "tier")
    table = kinds.agg(F.count(F.lit(1)).alias("differences")).toArrow()
    for batch in table.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _count(result: Backtest, old: str, new: str, tier: int, differences: int) -> None:
    now = result.by_reason.setdefault(old or ACCEPTED, {})
    now[new or ACCEPTED] = now.get(new or ACCEPTED, 0) + differences
    result.by_tier[str(tier)] = result.by_tier.get(str(tier), 0) + differences
    result.differences += differences
