"""`recommend`: finds the tightest limits that reject hardly any wanted traffic.

Wanted are arrivals from senders that their recipient has written to (tier 2 or 3), unless the table
`anomalies` names the sender on that day. Each limit is about a recorded number: publishes in the
sender's rate window, messages and bytes of the sender in the inbox, messages in the inbox. The
distribution of that number over all arrivals gives the share that any value of the limit rejects.

The share is exact for a single limit that rejects nothing, and an upper bound otherwise: a rejected
message does not count towards the next. Several limits may reject the same message, so each limit
first gets the whole allowed share. All of them are replayed together; if they reject too much,
each gets a smaller share. `measured` is the share that the replay rejects.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, Lake
from waypost.pipeline.replay.arrivals import LIMITED, replayable_arrivals
from waypost.pipeline.replay.backtest import Cache, replay
from waypost.pipeline.replay.settings_timeline import SettingsTimeline, read_timeline
from waypost.pipeline.replay.tier_stage import restored_pairs, with_tiers
from waypost.pipeline.spark.partitioning import fit_shuffles
from waypost.pipeline.tables import anomalies
from waypost.policy.settings import Settings, to_config_document

_KIB = 1024
_CURVE_POINTS = 12
_LIMIT_REASONS = ("rate_limited", "backpressure", "quota_exceeded")
_TIERS_ON = b'{"qos": {"enabled": true}}'

RATE, CAP = "reliability.rateLimit.maxPerWindow", "reliability.backpressure.maxMailboxSize"
_COUNTS = {tier: f"qos.tier{tier}.maxEnvelopes" for tier in (2, 3)}
_BYTES = {tier: f"qos.tier{tier}.maxBytes" for tier in (2, 3)}
_DIVISORS = (1, 2, 4)
"""Each limit gets the allowed share divided by this. An arrival can be rejected by rate, cap, count
or bytes, so with the last of these they stay within the share even if they never overlap."""

_Histogram = list[tuple[int, int, int]]
"""Limit values, each with the number of wanted and of unwanted arrivals that need just that."""


class Point(msgspec.Struct, frozen=True):
    """The shares (0.0 to 1.0) of wanted and of unwanted traffic that a limit rejects."""

    limit: int
    wanted: float
    unwanted: float


class Limit(msgspec.Struct, frozen=True):
    """A limit by its path in `config.json`: its current and recommended value, and its curve."""

    path: str
    current: int
    recommended: int
    curve: list[Point]


class Recommendation(msgspec.Struct, kw_only=True):
    """The result of `recommend`. `settings` fits into `config.json`. Shares are 0.0 to 1.0.

    `measured`: share of wanted arrivals that a replay under `settings` rejects by one of these
    limits; `measured_before`: the share that history rejected. Arrivals that were rate limited in
    history are never wanted: their tier is not known.
    """

    reject_at_most: float
    wanted: int = 0
    unwanted: int = 0
    limits: list[Limit] = []
    settings: dict[str, Any] = {}
    measured: float = 0.0
    measured_before: float = 0.0
    notes: list[str] = []


def recommend(lake: Lake, reject_at_most: float) -> Recommendation:
    """Find limits that reject at most the share `reject_at_most` of wanted arrivals."""
    fit_shuffles(lake.spark, lake.manifest.event_bytes)
    events = lake.read(EVENTS_TABLE, EVENTS)
    timeline = read_timeline(events, lake.manifest.relays, _TIERS_ON)
    flagged = lake.read("anomalies", anomalies.SCHEMA).select("day", "relay", "sender").distinct()
    result = Recommendation(reject_at_most=reject_at_most, notes=_notes(timeline))
    with Cache() as cache:
        rows = cache.keep(_with_wanted(_arrivals(events, timeline), flagged))
        wanted, unwanted, rejected = _totals(rows)
        result.wanted, result.unwanted = wanted, unwanted
        if not wanted:
            result.notes.append("no recipient ever wrote back: there is no wanted traffic")
            return result
        result.measured_before = rejected / wanted
        histograms, current = _histograms(rows), timeline.distinct[-1].recorded
        for divisor in _DIVISORS:
            result.limits = _choose_limits(histograms, current, reject_at_most / divisor)
            before, result.settings = result.settings, _config_document(result.limits)
            if result.settings == before:
                continue
            changes = msgspec.json.encode(result.settings)
            replayed = read_timeline(events, lake.manifest.relays, changes)
            more = _newly_rejected(events, replayed, flagged)
            result.measured = (rejected + more) / wanted
            if result.measured <= reject_at_most:
                break
    return result


def _arrivals(events: DataFrame, timeline: SettingsTimeline) -> DataFrame:
    """Return arrivals at an endpoint, with their tier; where tiers were off, the replayed one."""
    rows = timeline.attach(replayable_arrivals(events).where(F.col("endpoint") != ""))
    return rows if timeline.keeps_tiers() else with_tiers(rows, restored_pairs(events))


def _with_wanted(rows: DataFrame, flagged: DataFrame) -> DataFrame:
    named = F.broadcast(flagged.withColumn("flagged", F.lit(True)))
    joined = rows.join(named, on=["day", "relay", "sender"], how="left")
    return joined.select(
        "relay",
        "seq",
        "part",
        "tier",
        "old_reason",
        "depth",
        "size",
        "rate_count",
        "rate_bounded",
        "quota_count",
        "quota_bytes",
        "quota_known",
        ((F.col("tier") >= 2) & F.col("flagged").isNull()).alias("wanted"),
    )


def _totals(rows: DataFrame) -> tuple[int, int, int]:
    """Count wanted arrivals, unwanted ones, and wanted ones that a limit rejected in history."""
    rejected = F.col("old_reason").isin(*_LIMIT_REASONS)
    row = rows.agg(
        F.count_if("wanted").alias("wanted"),
        F.count_if(~F.col("wanted")).alias("unwanted"),
        F.count_if(F.col("wanted") & rejected).alias("rejected"),
    ).collect()[0]
    return row.wanted, row.unwanted, row.rejected


# What each limit rejects


def _histograms(rows: DataFrame) -> dict[str, _Histogram]:
    """Count by limit, and by the least value of it that accepts an arrival."""
    histograms: dict[str, _Histogram] = {}
    needs = rows.select("wanted", F.explode(_needed_values()).alias("need"))
    counts = needs.groupBy("need.path", "need.value").agg(
        F.count_if("wanted").alias("wanted"), F.count_if(~F.col("wanted")).alias("unwanted")
    )
    for row in counts.where(F.col("path").isNotNull()).collect():
        histograms.setdefault(row.path, []).append((row.value, row.wanted, row.unwanted))
    return histograms


def _needed_values() -> Column:
    """Return for each limit its path and the least value that accepts an arrival.

    The path is null where the number was not recorded.
    """
    full = F.col("old_reason") == "backpressure"
    recorded = F.col("quota_known") & ~full
    in_kib = (F.ceil((F.col("quota_bytes") + F.col("size")) / _KIB) * _KIB).cast("bigint")

    def need(path: Column, value: Column) -> Column:
        return F.struct(path.alias("path"), value.cast("bigint").alias("value"))

    def by_tier(paths: dict[int, str]) -> Column:
        path = F.when(recorded & (F.col("tier") == 2), paths[2])
        return path.when(recorded & (F.col("tier") == 3), paths[3])

    first_part = (F.col("part") == 0) & F.col("rate_bounded")
    return F.array(
        need(F.when(first_part, RATE), F.col("rate_count") + 1),
        need(F.lit(CAP), F.col("depth") + 1),
        need(by_tier(_COUNTS), F.col("quota_count") + 1),
        need(by_tier(_BYTES), in_kib),
    )


def _choose_limits(
    histograms: dict[str, _Histogram], settings: Settings, share: float
) -> list[Limit]:
    """Return the tightest limits that each reject at most `share` of wanted arrivals."""
    found = [
        limit
        for path, values in sorted(histograms.items())
        if (limit := _choose(path, sorted(values), _current(settings, path), share)) is not None
    ]
    return _ordered_by_tier(found)


def _choose(path: str, values: _Histogram, current: int, share: float) -> Limit | None:
    """Return the least limit that rejects at most `share`; None without wanted arrivals."""
    wanted, unwanted = sum(one[1] for one in values), sum(one[2] for one in values)
    if not wanted:
        return None
    wanted_left, unwanted_left = wanted, unwanted
    points = [Point(0, 1.0, 1.0 if unwanted else 0.0)]
    for value, of_wanted, of_unwanted in values:
        wanted_left, unwanted_left = wanted_left - of_wanted, unwanted_left - of_unwanted
        unwanted_share = unwanted_left / unwanted if unwanted else 0.0
        points.append(Point(value, wanted_left / wanted, unwanted_share))
    chosen = next(point for point in points if point.wanted <= share and point.limit > 0)
    return Limit(path, current, chosen.limit, _sample_curve(points[1:], chosen))


def _sample_curve(points: list[Point], chosen: Point) -> list[Point]:
    """Return a few points of a curve, including its ends and the chosen one."""
    step = max(1, len(points) // _CURVE_POINTS)
    sampled = {*points[::step], points[-1], chosen}
    return sorted(sampled, key=lambda point: point.limit)


def _ordered_by_tier(limits: list[Limit]) -> list[Limit]:
    """Raise the limits of tier 3 to those of tier 2 where they are lower."""
    by_path = {limit.path: limit for limit in limits}
    for paths in (_COUNTS, _BYTES):
        low, high = by_path.get(paths[2]), by_path.get(paths[3])
        if low and high and low.recommended > high.recommended:
            by_path[paths[3]] = msgspec.structs.replace(high, recommended=low.recommended)
    return list(by_path.values())


# The limits as settings, and their replay


def _current(settings: Settings, path: str) -> int:
    value: Any = to_config_document(settings)
    for name in path.split("."):
        value = value[name]
    return int(value)


def _config_document(limits: Iterable[Limit]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for limit in limits:
        *parents, name = limit.path.split(".")
        section = document
        for parent in parents:
            section = section.setdefault(parent, {})
        section[name] = limit.recommended
        switch = document["qos"] if parents[0] == "qos" else section
        switch["enabled"] = True
    return document


def _newly_rejected(events: DataFrame, timeline: SettingsTimeline, flagged: DataFrame) -> int:
    """Return how many more wanted arrivals these limits reject in a replay than in history."""
    with Cache() as cache:
        changes = replay(events, timeline, cache).changes()
        changes = changes.withColumn("day", F.to_date(F.timestamp_millis("at_ms")))
        tier_known = (F.col("tier") >= 2) & (F.col("old_reason") != LIMITED)
        wanted = changes.where(tier_known).join(
            F.broadcast(flagged), on=["day", "relay", "sender"], how="left_anti"
        )
        new = F.col("new_reason").isin(*_LIMIT_REASONS).cast("bigint")
        old = F.col("old_reason").isin(*_LIMIT_REASONS).cast("bigint")
        more = wanted.agg(F.coalesce(F.sum(new - old), F.lit(0)).alias("more"))
        return int(more.collect()[0].more)


def _notes(timeline: SettingsTimeline) -> list[str]:
    notes = []
    if not all(period.recorded.rate_limit.enabled for period in timeline.distinct):
        notes.append("rate limits were off at times: their curve lacks the traffic of these times")
    if not all(period.recorded.qos.enabled for period in timeline.distinct):
        notes.append("quotas were off at times: their curves lack the traffic of these times")
    return notes
