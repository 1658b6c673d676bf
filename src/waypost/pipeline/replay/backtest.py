"""`backtest`: decides every recorded arrival again, under other settings.

    screening                all pairs                which senders and endpoints are affected?
    stage 1   by sender      affected senders         rate limit            → passed or rejected
    stage 2   by pair        pairs that changed       last messages         → tier
    stage 3   by recipient   affected endpoints       caps, quota, breaker, → new_reason
                                                      budget, evictions

`replay` runs them top to bottom; every round trip to the driver is on this page. Decisions that no
stage replays stay as recorded. The rules are in docs/backtest.md.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.files import replace_file
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, Lake
from waypost.pipeline.replay.arrivals import (
    DECISION_COLUMNS,
    LIMITED,
    OUTPUT_COLUMNS,
    STAGE_COLUMNS,
    arrivals_of,
    replayable_arrivals,
)
from waypost.pipeline.replay.inbox_stage import inbox_rows, inbox_stage
from waypost.pipeline.replay.keys import (
    KEY,
    NO_KEYS,
    KeySet,
    collect_keys,
    common_keys,
    distinct_keys,
    require_capacity,
)
from waypost.pipeline.replay.rate_stage import RateResult, changed_pairs, rate_stage
from waypost.pipeline.replay.screening import (
    pair_facts,
    screen_endpoints,
    screen_senders,
    sum_up,
)
from waypost.pipeline.replay.settings_timeline import SettingsTimeline, read_timeline
from waypost.pipeline.replay.tier_stage import (
    NO_PAIRS,
    endpoints_of,
    of_pairs,
    replace_tiers,
    replies,
    restored_pairs,
    tier_stage,
    tiers_by_endpoint,
    uncertain_pairs,
)
from waypost.pipeline.spark.partitioning import fit_shuffles
from waypost.policy.reasons import Reason

ACCEPTED = "accepted"
RESULT_FILE = "backtest.json"
_SENDERS_SHOWN = 20
_BROADCAST_MAX = 500_000
"""Broadcast-join threshold, in rows."""


# The result


class SenderDifferences(msgspec.Struct, frozen=True):
    """A sender, and the number of its arrivals whose decision changed."""

    relay: str
    sender: str
    differences: int


class ReplayScope(msgspec.Struct, frozen=True):
    """The number of senders and endpoints, and of those that were replayed step by step."""

    senders: int = 0
    senders_replayed: int = 0
    endpoints: int = 0
    endpoints_replayed: int = 0


class Backtest(msgspec.Struct, kw_only=True):
    """The result of a backtest. Reasons are those of rejections, or "accepted".

    `by_reason`: old reason → new reason → number of arrivals. `by_tier`: differences by replayed
    tier. `rejected_before`, `rejected`: all rejections by reason, recorded and replayed. `counted`:
    rejections in floods that the journal only counts; no other number includes them. `notes`: what
    was not replayed.
    """

    messages: int = 0
    differences: int = 0
    by_reason: dict[str, dict[str, int]] = {}
    by_tier: dict[str, int] = {}
    by_sender: list[SenderDifferences] = []
    rejected_before: dict[str, int] = {}
    rejected: dict[str, int] = {}
    counted: int = 0
    scope: ReplayScope
    notes: list[str] = []
    out: str | None = None


def backtest(
    lake: Lake, settings: bytes | None = None, out: str | None = None, *, shortcut: bool = True
) -> Backtest:
    """Replay all arrivals of `lake` under the recorded settings, changed by `settings`.

    `settings` is the text of a `config.json`. With `out`, write every decision there as Parquet,
    replacing what it holds. Without `shortcut`, replay every sender and endpoint step by step, also
    those that screening proves unaffected. Raise `InvalidSettings` before anything is replayed.
    """
    fit_shuffles(lake.spark, lake.manifest.events)
    events = lake.read(EVENTS_TABLE, EVENTS)
    timeline = read_timeline(events, lake.manifest.relays, settings)
    output_columns = OUTPUT_COLUMNS if out is not None else ()
    with Cache() as cache:
        run = replay(events, timeline, cache, output_columns, shortcut=shortcut)
        result = _summarize(run, timeline)
        if out is not None:
            run.decisions().write.mode("overwrite").parquet(out)
            result.out = out
    return result


def remember(lake: Lake, result: Backtest) -> None:
    """Write `result` into the lake for the dashboard, if the lake is a local directory."""
    directory = Path(lake.path)
    if directory.is_dir():
        replace_file(directory / RESULT_FILE, msgspec.json.encode(result))


# The stages


class Cache(ExitStack):
    """Keeps DataFrames that are read more than once in Spark's cache, until it is closed."""

    def keep(self, rows: DataFrame) -> DataFrame:
        """Cache `rows` once they are computed."""
        rows.persist()
        self.callback(rows.unpersist)
        return rows


@dataclass(frozen=True)
class Affected:
    """The result of screening. `pairs` are facts by pair, `totals` sums over all senders.

    `senders` are those to replay. `endpoints` are all there are: relay, name, redriven, affected.
    """

    pairs: DataFrame
    totals: dict[str, int]
    senders: KeySet
    endpoints: pa.Table


@dataclass(frozen=True)
class Replay:
    """A replay to read the decisions of. `inboxes` are the arrivals at the replayed `endpoints`."""

    events: DataFrame
    output_columns: tuple[str, ...]
    affected: Affected
    rated: RateResult
    new_tiers: DataFrame | None
    endpoints: KeySet
    inboxes: DataFrame

    def scope(self) -> ReplayScope:
        """Return the number of senders and endpoints, and of those that were replayed."""
        return ReplayScope(
            senders=self.affected.totals["senders"],
            senders_replayed=self.affected.senders.count,
            endpoints=self.affected.endpoints.num_rows,
            endpoints_replayed=self.endpoints.count,
        )

    def changes(self) -> DataFrame:
        """Return the arrivals whose decision changed, with `new_reason`."""
        rows, passed, limited = self.rated.rows, F.col("passed"), F.col("limited")
        # An arrival that passes now and has an endpoint is among the results of its inbox.
        nowhere = F.col("endpoint") == ""
        return self._union(
            (rows.where(~passed & ~limited), F.lit(LIMITED)),
            (rows.where(passed & limited & nowhere), F.lit("")),
            (self.inboxes.where("new_reason != old_reason"), F.col("new_reason")),
        )

    def decisions(self) -> DataFrame:
        """Return every arrival with its recorded and its replayed decision."""
        events, rated = self.events, self.rated
        recorded, nowhere = F.col("old_reason"), F.col("endpoint") == ""
        unaffected = rated.senders.exclude(replayable_arrivals(events), by="sender")
        passed = replace_tiers(rated.passed(events), self.new_tiers)
        rows = self._union(
            (arrivals_of(events).where("not_replayed"), recorded),
            (unaffected.where(F.col("limited") | nowhere), recorded),
            (self.endpoints.exclude(passed, by="endpoint"), recorded),
            (rated.rows.where(~F.col("passed")), F.lit(LIMITED)),
            (rated.rows.where(F.col("passed") & nowhere), F.lit("")),
            (self.inboxes, F.col("new_reason")),
        )
        return _as_decisions(rows)

    def _union(self, *parts: tuple[DataFrame, Column]) -> DataFrame:
        columns = (*DECISION_COLUMNS, *self.output_columns)
        selected = [rows.select(*columns, new.alias("new_reason")) for rows, new in parts]
        return reduce(DataFrame.unionByName, selected)


def replay(
    events: DataFrame,
    timeline: SettingsTimeline,
    cache: Cache,
    output_columns: tuple[str, ...] = (),
    *,
    shortcut: bool = True,
) -> Replay:
    """Replay the arrivals of `events`. Keep `cache` open while the result is read.

    `output_columns` are those that `Replay.decisions` needs; without them, only
    `Replay.changes` can be read.
    """
    columns = (*STAGE_COLUMNS, *output_columns)
    affected = screen(events, timeline, cache, shortcut=shortcut)

    # Stage 1, by sender.
    senders = affected.senders
    known_endpoints = affected.endpoints.select(KEY) if affected.totals[LIMITED] else None
    rows = rate_stage(events, timeline, senders, columns, known_endpoints)
    changed = NO_PAIRS
    if senders.count:
        cache.keep(rows)
        changed = changed_pairs(rows).toArrow()  # round trip 4
    rated = RateResult(senders, rows, changed)

    # Stage 2, by pair.
    new_tiers, retiered = None, NO_KEYS
    if timeline.uses_tiers():
        new_tiers, retiered = _replay_tiers(
            events, timeline, affected.pairs, rated, cache, shortcut=shortcut
        )

    # Stage 3, by recipient: endpoints affected by themselves, by rate limits or by tiers.
    every = affected.endpoints
    touched = common_keys(every, distinct_keys(endpoints_of(changed), retiered))
    to_replay = distinct_keys(every.filter(every["affected"]), touched)
    endpoints = KeySet(events.sparkSession, to_replay)
    inboxes = rows.where(F.lit(False)).withColumn("new_reason", F.lit(""))
    if endpoints.count:
        rows = inbox_rows(
            events,
            rated,
            endpoints,
            columns,
            with_leases=timeline.evicts(),
            with_redrives=bool(pc.max(every["redriven"]).as_py()),
        )
        rows = replace_tiers(rows, new_tiers)
        inboxes = inbox_stage(rows, timeline, endpoints, output_columns)
        if output_columns:
            cache.keep(inboxes)  # read twice: by the summary and for the output
    return Replay(events, output_columns, affected, rated, new_tiers, endpoints, inboxes)


def screen(
    events: DataFrame, timeline: SettingsTimeline, cache: Cache, *, shortcut: bool
) -> Affected:
    """Find the senders and endpoints that the replayed settings can affect."""
    pairs = cache.keep(pair_facts(events, timeline))
    by_sender = screen_senders(pairs, shortcut=shortcut)
    by_endpoint = screen_endpoints(pairs, shortcut=shortcut)
    # Not at the same time: the second query finds the pairs in the cache.
    totals = sum_up(by_sender).collect()[0].asDict()  # round trip 1
    endpoints = collect_keys(by_endpoint, "endpoint", "redriven", "affected")  # round trip 2
    require_capacity(totals["affected"])
    senders = NO_KEYS
    if totals["affected"]:
        senders = collect_keys(by_sender.where("affected"), "sender")  # round trip 3
    return Affected(pairs, totals, KeySet(events.sparkSession, senders), endpoints)


def _replay_tiers(
    events: DataFrame,
    timeline: SettingsTimeline,
    pairs: DataFrame,
    rated: RateResult,
    cache: Cache,
    *,
    shortcut: bool,
) -> tuple[DataFrame | None, pa.Table]:
    """Return the tiers that changed, if any, and the keys of endpoints whose tiers were known.

    Recorded tiers hold as long as everything they depend on is the same: then only pairs whose
    rate-limit outcome changed are looked at.
    """
    keeps_tiers = shortcut and timeline.keeps_tiers()
    uncertain = NO_PAIRS
    if keeps_tiers and rated.changed.num_rows:
        replied = replies(rated.changed, pairs).toArrow()  # round trip 5
        uncertain = uncertain_pairs(rated.changed, replied)
    if keeps_tiers and not uncertain.num_rows:
        return None, NO_KEYS
    passed, restored = rated.passed(events), restored_pairs(events)
    if keeps_tiers:
        some = events.sparkSession.createDataFrame(uncertain)
        passed, restored = of_pairs(passed, some), of_pairs(restored, some)
    tiers = cache.keep(tier_stage(timeline.attach(passed), restored))
    by_endpoint = tiers_by_endpoint(tiers).toArrow()  # round trip 6
    if not by_endpoint.num_rows:
        return None, NO_KEYS
    new_tiers = tiers.select("relay", "seq", "new_tier")
    if pc.sum(by_endpoint["arrivals"]).as_py() <= _BROADCAST_MAX:
        new_tiers = F.broadcast(new_tiers)
    return new_tiers, by_endpoint.filter(by_endpoint["tier_known"])


def _as_decisions(rows: DataFrame) -> DataFrame:
    old, new = F.col("old_reason"), F.col("new_reason")
    # An arrival that no rate limit lets pass has no endpoint.
    nowhere = (old == LIMITED) & (new == LIMITED)
    return rows.select(
        "relay",
        "seq",
        "id",
        "sender",
        "subject",
        F.when(nowhere, "").otherwise(F.col("endpoint")).alias("endpoint"),
        "tier",
        F.when(old == "", ACCEPTED).otherwise("rejected").alias("old"),
        F.nullif(old, F.lit("")).alias("old_reason"),
        F.when(new == "", ACCEPTED).otherwise("rejected").alias("new"),
        F.nullif(new, F.lit("")).alias("new_reason"),
        (old != new).alias("changed"),
    )


# The summary


def _summarize(run: Replay, timeline: SettingsTimeline) -> Backtest:
    totals = run.affected.totals
    before = {reason.value: totals[reason.value] for reason in Reason}
    result = Backtest(
        messages=totals["arrivals"],
        counted=totals["counted"],
        rejected_before={reason: count for reason, count in before.items() if count},
        scope=run.scope(),
        notes=_notes(timeline, totals["counted"]),
    )
    after = dict(before)
    by_sender: Counter[tuple[str, str]] = Counter()
    for row in _count_changes(run.changes()):
        old, new, differences = row["old_reason"], row["new_reason"], row["differences"]
        _add(result, old, new, row["tier"], differences)
        by_sender[row["relay"], row["sender"]] += differences
        for reason, sign in ((old, -1), (new, 1)):
            if reason:
                after[reason] += sign * differences
    result.rejected = {reason: count for reason, count in after.items() if count}
    most = sorted(by_sender.items(), key=lambda one: (-one[1], one[0]))[:_SENDERS_SHOWN]
    result.by_sender = [SenderDifferences(*sender, differences) for sender, differences in most]
    return result


def _count_changes(changes: DataFrame) -> Iterator[dict[str, Any]]:
    """Count `changes` by sender, old and new reason, and tier."""
    kinds = changes.groupBy("relay", "sender", "old_reason", "new_reason", "tier")
    table = kinds.agg(F.count(F.lit(1)).alias("differences")).toArrow()  # the last round trip
    for batch in table.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _add(result: Backtest, old: str, new: str, tier: int, differences: int) -> None:
    by_new_reason = result.by_reason.setdefault(old or ACCEPTED, {})
    by_new_reason[new or ACCEPTED] = by_new_reason.get(new or ACCEPTED, 0) + differences
    result.by_tier[str(tier)] = result.by_tier.get(str(tier), 0) + differences
    result.differences += differences


def _notes(timeline: SettingsTimeline, counted: int) -> list[str]:
    """Return a sentence for everything that was not replayed."""
    notes = []
    if counted:
        notes.append(
            f"{counted:,} rejections in floods are only counted in the journal; not replayed"
        )
    notes.extend(
        f"{path} is not replayed: no decision depends on it" for path in timeline.ignored_settings()
    )
    return notes
