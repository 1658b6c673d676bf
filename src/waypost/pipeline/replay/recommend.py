"""`recommend`: the tightest limits that wanted traffic hardly notices.

Wanted are arrivals from senders that their recipient has written to (tier 2 or 3), unless the
table `anomalies` names the sender on that day. For each limit the number that it is about is known
for each arrival: how much its sender had sent within the rate window, what it had in the inbox,
and how full that was. From how often each number occurs follows what any limit would have refused.

That is exact for a limit by itself while it refuses nothing, and an upper bound otherwise: what is
refused does not count towards the next. A message may fall to several limits at once, so each is
first given the whole share that is allowed. All of them are replayed together, and if that refuses
too much, each gets less: `measured` is what really would have happened.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, Lake
from waypost.pipeline.replay.arrivals import LIMITED, arrivals_of
from waypost.pipeline.replay.settings_timeline import Eras, read_eras
from waypost.pipeline.replay.stages import Replay
from waypost.pipeline.replay.tier_stage import restored_pairs, with_tiers
from waypost.pipeline.spark.partitioning import fit_shuffles
from waypost.pipeline.tables import anomalies
from waypost.policy.settings import Settings, to_config_document

_KIB = 1024
_POINTS = 12
_LIMITED = ("rate_limited", "backpressure", "quota_exceeded")
_TIERS_ON = b'{"qos": {"enabled": true}}'

RATE, CAP = "reliability.rateLimit.maxPerWindow", "reliability.backpressure.maxMailboxSize"
_COUNTS = {tier: f"qos.tier{tier}.maxEnvelopes" for tier in (2, 3)}
_BYTES = {tier: f"qos.tier{tier}.maxBytes" for tier in (2, 3)}
_PARTS = (1, 2, 4)
"""Each limit gets the share divided by this. A message can fall to rate, cap, count or bytes, so
with the last of them they stay within the share even if none falls to two."""

_Counted = dict[str, list[tuple[int, int, int]]]


class Point(msgspec.Struct, frozen=True):
    """With this limit, these shares (0.0 to 1.0) of wanted and of other traffic are refused."""

    limit: int
    wanted: float
    unwanted: float


class Limit(msgspec.Struct, frozen=True):
    """A limit by its path in `config.json`, what it is now and should be, and the trade-off."""

    path: str
    current: int
    recommended: int
    curve: list[Point]


class Recommendation(msgspec.Struct, kw_only=True):
    """`settings` is ready for `config.json`. Shares are 0.0 to 1.0.

    `measured`: share of wanted arrivals that a replay with `settings` refuses for one of these
    limits; `measured_before`: what history refused. Wanted are only arrivals that got past their
    sender's rate limit: of others nobody knows the tier.
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
    """Limits that refuse at most the share `reject_at_most` of wanted arrivals."""
    fit_shuffles(lake.spark, lake.manifest.events)
    events = lake.read(EVENTS_TABLE, EVENTS)
    eras = read_eras(events, lake.manifest.relays, _TIERS_ON)
    flagged = lake.read("anomalies", anomalies.SCHEMA).select("day", "relay", "sender").distinct()
    rows = _with_wanted(_arrivals(events, eras), flagged).persist()
    try:
        result = Recommendation(reject_at_most=reject_at_most, notes=_notes(eras))
        wanted, unwanted, rejected = _totals(rows)
        result.wanted, result.unwanted = wanted, unwanted
        if not wanted:
            result.notes.append("nobody answered anybody: there is no wanted traffic to judge by")
            return result
        result.measured_before = rejected / wanted
        counted, settings = _counted(rows), eras.regimes[-1].recorded
        for parts in _PARTS:
            result.limits = _limits(counted, settings, reject_at_most / parts)
            before, result.settings = result.settings, _fragment(result.limits)
            if result.settings == before:
                continue
            chosen = msgspec.json.encode(result.settings)
            replayed = read_eras(events, lake.manifest.relays, chosen)
            more = _newly_rejected(Replay(events, replayed), flagged)
            result.measured = (rejected + more) / wanted
            if result.measured <= reject_at_most:
                break
        return result
    finally:
        rows.unpersist()


def _arrivals(events: DataFrame, eras: Eras) -> DataFrame:
    """Arrivals at an endpoint, with their tier; where tiers were off, the one they would have."""
    passed = arrivals_of(events).where((F.col("endpoint") != "") & ~F.col("kept"))
    rows = eras.attach(passed)
    return rows if eras.tiers_stand() else with_tiers(rows, restored_pairs(events))


def _with_wanted(rows: DataFrame, flagged: DataFrame) -> DataFrame:
    named = F.broadcast(flagged.withColumn("named", F.lit(True)))
    joined = rows.join(named, on=["day", "relay", "sender"], how="left")
    return joined.select(
        *("relay", "seq", "part", "tier", "old_reason", "depth", "size"),
        *("rate_count", "rate_bounded", "quota_count", "quota_bytes", "quota_known"),
        ((F.col("tier") >= 2) & F.col("named").isNull()).alias("wanted"),
    )


def _totals(rows: DataFrame) -> tuple[int, int, int]:
    rejected = F.col("old_reason").isin(*_LIMITED)
    row = rows.agg(
        F.count_if("wanted").alias("wanted"),
        F.count_if(~F.col("wanted")).alias("unwanted"),
        F.count_if(F.col("wanted") & rejected).alias("rejected"),
    ).collect()[0]
    return row.wanted, row.unwanted, row.rejected


# What a limit would have cost


def _counted(rows: DataFrame) -> _Counted:
    """How many wanted and other arrivals need each value of each limit to pass."""
    counted: _Counted = {}
    measures = rows.select("wanted", F.explode(_measures()).alias("measure"))
    sums = measures.groupBy("measure.path", "measure.value").agg(
        F.count_if("wanted").alias("wanted"), F.count_if(~F.col("wanted")).alias("unwanted")
    )
    for row in sums.where(F.col("path").isNotNull()).collect():
        counted.setdefault(row.path, []).append((row.value, row.wanted, row.unwanted))
    return counted


def _limits(counted: _Counted, settings: Settings, share: float) -> list[Limit]:
    """The tightest limits that each refuse at most `share` of what is wanted."""
    found = [
        limit
        for path, values in sorted(counted.items())
        if (limit := _limit(path, sorted(values), _current(settings, path), share)) is not None
    ]
    return _in_order(found)


def _measures() -> Column:
    """For each limit the least value that lets an arrival pass."""
    full = F.col("old_reason") == "backpressure"
    told = F.col("quota_known") & ~full
    in_kib = (F.ceil((F.col("quota_bytes") + F.col("size")) / _KIB) * _KIB).cast("bigint")

    def measure(path: Column, value: Column) -> Column:
        return F.struct(path.alias("path"), value.cast("bigint").alias("value"))

    def by_tier(paths: dict[int, str]) -> Column:
        path = F.when(told & (F.col("tier") == 2), paths[2])
        return path.when(told & (F.col("tier") == 3), paths[3])

    first = (F.col("part") == 0) & F.col("rate_bounded")
    return F.array(
        measure(F.when(first, RATE), F.col("rate_count") + 1),
        measure(F.lit(CAP), F.col("depth") + 1),
        measure(by_tier(_COUNTS), F.col("quota_count") + 1),
        measure(by_tier(_BYTES), in_kib),
    )


def _limit(
    path: str, values: list[tuple[int, int, int]], current: int, share: float
) -> Limit | None:
    """The least limit that refuses at most `share` of what is wanted; None if nothing is."""
    wanted, unwanted = sum(one[1] for one in values), sum(one[2] for one in values)
    if not wanted:
        return None
    left, other = wanted, unwanted
    points = [Point(0, 1.0, 1.0 if unwanted else 0.0)]
    for value, of_wanted, of_other in values:
        left, other = left - of_wanted, other - of_other
        points.append(Point(value, left / wanted, other / unwanted if unwanted else 0.0))
    chosen = next(point for point in points if point.wanted <= share and point.limit > 0)
    return Limit(path, current, chosen.limit, _thinned(points[1:], chosen))


def _thinned(points: list[Point], chosen: Point) -> list[Point]:
    """A few points of a curve, its ends and the chosen one among them."""
    step = max(1, len(points) // _POINTS)
    kept = {*points[::step], points[-1], chosen}
    return sorted(kept, key=lambda point: point.limit)


def _in_order(limits: list[Limit]) -> list[Limit]:
    """Better known senders get at least as much as others."""
    by_path = {limit.path: limit for limit in limits}
    for paths in (_COUNTS, _BYTES):
        low, high = by_path.get(paths[2]), by_path.get(paths[3])
        if low and high and low.recommended > high.recommended:
            by_path[paths[3]] = msgspec.structs.replace(high, recommended=low.recommended)
    return list(by_path.values())


# As settings, and what a replay says of them


def _current(settings: Settings, path: str) -> int:
    value: Any = to_config_document(settings)
    for name in path.split("."):
        value = value[name]
    return int(value)


def _fragment(limits: Iterable[Limit]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for limit in limits:
        *above, name = limit.path.split(".")
        place = document
        for one in above:
            place = place.setdefault(one, {})
        place[name] = limit.recommended
        switch = document["qos"] if above[0] == "qos" else place
        switch["enabled"] = True
    return document


def _newly_rejected(replay: Replay, flagged: DataFrame) -> int:
    """How many more wanted arrivals a replay refuses for these limits than history did."""
    try:
        changed = replay.changed().withColumn("day", F.to_date(F.timestamp_millis("at_ms")))
        known = (F.col("tier") >= 2) & (F.col("old_reason") != LIMITED)
        wanted = changed.where(known).join(
            F.broadcast(flagged), on=["day", "relay", "sender"], how="left_anti"
        )
        now = F.col("new_reason").isin(*_LIMITED).cast("bigint")
        before = F.col("old_reason").isin(*_LIMITED).cast("bigint")
        more = wanted.agg(F.coalesce(F.sum(now - before), F.lit(0)).alias("more"))
        return int(more.collect()[0].more)
    finally:
        replay.close()


def _notes(eras: Eras) -> list[str]:
    notes = []
    if not all(era.recorded.rate_limit.enabled for era in eras.regimes):
        notes.append("rate limits were off at times: what was sent then is not in their curve")
    if not all(era.recorded.qos.enabled for era in eras.regimes):
        notes.append(
            "quotas were off at times: what senders had in inboxes then is not in their curves"
        )
    return notes
