"""`backtest`: decides every recorded arrival again, under other settings.

    screening                all pairs                which senders and endpoints are affected?
    stage 1   by sender      affected senders         rate limit            → passed or rejected
    stage 2   by pair        pairs that changed       last messages         → tier
    stage 3   by recipient   affected endpoints       caps, quota, breaker, → new_reason
                                                      budget, evictions

`replay` runs them top to bottom; every round trip to the driver is on this page. Decisions that no
stage replays stay as recorded. The rules are in docs/backtest.md.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.errors import PipelineError
from waypost.pipeline.files import local_path, replace_file
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, Lake
from waypost.pipeline.replay.arrivals import OUTPUT_COLUMNS, STAGE_COLUMNS
from waypost.pipeline.replay.decisions import Replay
from waypost.pipeline.replay.inbox_stage import contact_rows, inbox_rows, inbox_stage
from waypost.pipeline.replay.keys import (
    NO_KEYS,
    KeySet,
    collect_keys,
    common_keys,
    distinct_keys,
    require_capacity,
)
from waypost.pipeline.replay.rate_stage import RateResult, changed_pairs, rate_stage
from waypost.pipeline.replay.screening import (
    Affected,
    pair_facts,
    screen_endpoints,
    screen_senders,
    sum_up,
)
from waypost.pipeline.replay.settings_timeline import SettingsTimeline, read_timeline
from waypost.pipeline.replay.tier_stage import (
    NO_NEW_TIERS,
    NO_PAIRS,
    TierResult,
    endpoints_of,
    of_pairs,
    replies,
    restored_pairs,
    senders_of,
    tier_stage,
    tiers_by_endpoint,
    uncertain_pairs,
)
from waypost.pipeline.spark.partitioning import fit_shuffles
from waypost.policy.reasons import Reason

ACCEPTED = "accepted"
RESULT_FILE = "backtest.json"
_RESULT_FILES = re.compile(r"part-.*|_SUCCESS|\..*\.crc")
_SENDERS_SHOWN = 20
_RIGHTS = ("patternSenders",)


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
    was not replayed, and whether the result could not be saved for the dashboard.
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
    those that screening proves unaffected. Raise `InvalidSettings` before anything is replayed, and
    `PipelineError` before anything is read if `out` must not be replaced.
    """
    if out is not None:
        require_replaceable(out, lake.path)
    fit_shuffles(lake.spark, lake.manifest.event_bytes)
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


def require_replaceable(out: str, lake: str) -> None:
    """Raise `PipelineError` if `out` has to do with the lake, or holds other than a result.

    Spark removes with all that is in it what it overwrites. Only local files are looked at.
    """
    problem = _relation_to_lake(out, lake) or _what_would_be_lost(out)
    if problem:
        raise PipelineError(
            f"cannot write decisions to {out}, which would be replaced: {problem}; give a new"
            " directory outside the lake"
        )


def _relation_to_lake(out: str, lake: str) -> str | None:
    ours, theirs = _address(out), _address(lake)
    if ours == theirs:
        return f"it is the lake {lake}"
    if ours in theirs.parents:
        return f"the lake {lake} is in it"
    if theirs in ours.parents:
        return f"it is in the lake {lake}"
    return None


def _what_would_be_lost(out: str) -> str | None:
    if _is_remote(out):
        return None
    directory = Path(local_path(out))
    try:
        if directory.exists() and not directory.is_dir():
            return "it is a file"
        names = sorted(directory.iterdir()) if directory.is_dir() else []
        other = next((one.name for one in names if not _is_of_result(one)), None)
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"
    return f"it holds {other}" if other else None


def _is_of_result(path: Path) -> bool:
    if path.name == "_temporary":  # of a backtest that was killed
        return True
    return bool(_RESULT_FILES.fullmatch(path.name)) and path.is_file()


def _address(given: str) -> PurePath:
    """Return a path without links, or an address, to be compared with others of its kind."""
    if _is_remote(given):
        return PurePosixPath(posixpath.normpath(given))
    return Path(local_path(given)).resolve()


def _is_remote(given: str) -> bool:
    return ":" in given.partition("/")[0] and not given.startswith("file:")


def save_result(lake: Lake, result: Backtest) -> None:
    """Write `result` into the lake for the dashboard, if the lake is a local directory.

    If that fails, note it in `result`: the answer of a long replay is worth more than its copy.
    """
    path = Path(lake.path, RESULT_FILE)
    try:
        if path.parent.is_dir():
            replace_file(path, msgspec.json.encode(result))
    except OSError as problem:
        result.notes.append(
            f"the dashboard does not have this result: cannot write {path}: {problem.strerror}"
        )


# The stages


class Cache(ExitStack):
    """Keeps DataFrames that are read more than once in Spark's cache, until it is closed."""

    def keep(self, rows: DataFrame) -> DataFrame:
        """Cache `rows` when they are first computed, and return them."""
        rows.persist()
        self.callback(rows.unpersist)
        return rows


def replay(
    events: DataFrame,
    timeline: SettingsTimeline,
    cache: Cache,
    output_columns: tuple[str, ...] = (),
    *,
    shortcut: bool = True,
) -> Replay:
    """Replay the arrivals of `events`. Keep `cache` open while the result is read.

    `output_columns` are those that `Replay.decisions` needs; `Replay.changes` needs none.
    """
    columns = (*STAGE_COLUMNS, *output_columns)
    affected = screen(events, timeline, cache, shortcut=shortcut)

    # Stage 1, by sender.
    rows, changed = rate_stage(events, timeline, affected, columns), NO_PAIRS
    if affected.senders.count:
        cache.keep(rows)
        changed = changed_pairs(rows).toArrow()  # round trip 4
    rated = RateResult(affected.senders, rows, changed)

    # Stage 2, by pair: only if recorded tiers may no longer hold.
    tiers = NO_NEW_TIERS
    uncertain = _arrivals_of_uncertain_tier(events, timeline, affected, rated, shortcut=shortcut)
    if uncertain is not None:
        passed, restored = uncertain
        rows = cache.keep(tier_stage(timeline.attach(passed), restored))
        tiers = TierResult(rows, tiers_by_endpoint(rows).toArrow())  # round trip 6

    # Stage 3, by recipient.
    keys = _affected_endpoints(affected, rated, tiers, by_tier=timeline.evicts_by_tier())
    endpoints = KeySet(events.sparkSession, keys)
    inboxes = rated.rows.where(F.lit(False)).withColumn("new_reason", F.lit(""))
    if endpoints.count:
        rows = inbox_rows(
            events,
            rated,
            endpoints,
            columns,
            with_leases=timeline.evicts(),
            with_redrives=affected.has_redrives,
        )
        if timeline.evicts_by_tier():
            passed, restored = rated.passed(events), restored_pairs(events)
            rows = rows.unionByName(contact_rows(passed, restored, endpoints, columns))
        inboxes = inbox_stage(tiers.replace(rows), timeline, endpoints, output_columns)
        if output_columns:
            cache.keep(inboxes)  # read twice: by the summary and for the output
    return Replay(events, output_columns, affected, rated, tiers, endpoints, inboxes)


def screen(
    events: DataFrame, timeline: SettingsTimeline, cache: Cache, *, shortcut: bool
) -> Affected:
    """Find the senders and endpoints that the replayed settings can affect."""
    pairs = cache.keep(pair_facts(events, timeline))
    by_sender = screen_senders(pairs, shortcut=shortcut)
    by_endpoint = screen_endpoints(pairs, shortcut=shortcut)
    # One after the other: the second query reads the pairs from the cache.
    totals = sum_up(by_sender).collect()[0].asDict()  # round trip 1
    columns = ("redriven", "fills_up", "affected")
    endpoints = collect_keys(by_endpoint, "endpoint", *columns)  # round trip 2
    require_capacity(totals["affected"])
    senders = NO_KEYS
    if totals["affected"]:
        senders = collect_keys(by_sender.where("affected"), "sender")  # round trip 3
    return Affected(pairs, totals, KeySet(events.sparkSession, senders), endpoints)


def _arrivals_of_uncertain_tier(
    events: DataFrame,
    timeline: SettingsTimeline,
    affected: Affected,
    rated: RateResult,
    *,
    shortcut: bool,
) -> tuple[DataFrame, DataFrame] | None:
    """Return the arrivals and the restored pairs to compute tiers from; None if all tiers hold.

    While the settings of tiers are the same, a tier can change only for pairs whose rate-limit
    outcome changed.
    """
    if not timeline.uses_tiers():
        return None
    if not (shortcut and timeline.keeps_tiers()):
        return rated.passed(events), restored_pairs(events)
    if not rated.changed.num_rows:
        return None
    replied = replies(rated.changed, affected.pairs).toArrow()  # round trip 5
    uncertain = uncertain_pairs(rated.changed, replied)
    if not uncertain.num_rows:
        return None
    return of_pairs(rated.passed(events), uncertain), of_pairs(restored_pairs(events), uncertain)


def _affected_endpoints(
    affected: Affected, rated: RateResult, tiers: TierResult, *, by_tier: bool
) -> pa.Table:
    """Return the keys of endpoints that screening, rate limits or tiers found affected.

    If evictions depend on tiers, a full inbox is affected by what its owner wrote to others.
    """
    known = affected.endpoints
    by_stages = distinct_keys(endpoints_of(rated.changed), tiers.endpoints())
    found = [known.filter(known["affected"]), common_keys(known, by_stages)]
    if by_tier:
        found.append(common_keys(known.filter(known["fills_up"]), senders_of(rated.changed)))
    return distinct_keys(*found)


# The summary


def _summarize(run: Replay, timeline: SettingsTimeline) -> Backtest:
    totals = run.affected.totals
    before = {reason.value: totals[reason.value] for reason in Reason}
    result = Backtest(
        messages=totals["arrivals"],
        counted=totals["counted"],
        rejected_before={reason: count for reason, count in before.items() if count},
        scope=_scope(run),
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


def _scope(run: Replay) -> ReplayScope:
    return ReplayScope(
        senders=run.affected.totals["senders"],
        senders_replayed=run.affected.senders.count,
        endpoints=run.affected.endpoints.num_rows,
        endpoints_replayed=run.endpoints.count,
    )


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
    for path in timeline.ignored_settings():
        reason = "no more than access rules are" if path in _RIGHTS else "no decision depends on it"
        notes.append(f"{path} is not replayed: {reason}")
    return notes
