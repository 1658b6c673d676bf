"""The marks: what each figure should reach, and whether it did, read from the results of a run.

Messages have 512 bytes, the machine has two cores, all checks are on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import series
from bench.pipeline.figures import (
    BUILD_WARM,
    DUCKDB,
    IMPORT,
    RUN_FRESH,
    RUN_WARM,
    SEQUENTIAL,
    WAYPOST,
)
from bench.series import Runs
from bench.tables import Table
from waypost.policy.bounds import access_rules_max

JOURNAL = "Waypost journal, fsync"
MANY = "Waypost journal, fsync, publish_many"
MAILDIR = "Waypost maildir, fsync"
SERVED = "Waypost served, journal"
REDIS = "Redis Streams"
NATS = "NATS JetStream"
NATS_DEFAULT = "NATS JetStream, sync every 2m"

REACHED, NOT_REACHED, SMALLER = "yes", "NO", "smaller run"
MILLION = 1_000_000
LARGE = 100_000
CONNECTIONS = 5_000
STEADY_SECONDS = 600
FLOOD_SECONDS = 10

SMALL, MEDIUM, LARGER, HUGE = 825_000, 4_000_000, 20_000_000, 100_000_000
SIZE_NAMES = {SMALL: "825 k", MEDIUM: "4 M", LARGER: "20 M"}
NEAR = 0.15
"""How far a size may be from that of a mark of the pipeline, as a share of it."""

BUILD = "build"
PAYLOADS = "ingest of payloads of"

Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """A figure of one benchmark, and the bounds it has to keep.

    `read` returns the figure of each run; it raises `KeyError` if a peer was not measured.
    `is_full` is False for results of a smaller size than the mark's.
    """

    name: str
    benchmark: str
    read: Callable[[Found], Runs]
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""
    is_full: Callable[[Found], bool] = lambda found: True

    def measured(self, results: dict[str, Any]) -> Runs | None:
        """Return the figure of each run, None if it was not measured."""
        try:
            return self.read(results["benchmarks"][self.benchmark])
        except KeyError:
            return None

    def is_reached(self, runs: Runs) -> bool:
        """Return whether the median is within the bounds."""
        value = series.median(runs)
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def outcome(self, results: dict[str, Any], runs: Runs) -> str:
        """Return whether the mark is reached, in words."""
        if not self.is_full(results["benchmarks"][self.benchmark]):
            return SMALLER
        return REACHED if self.is_reached(runs) else NOT_REACHED

    @property
    def bound_text(self) -> str:
        """The bounds, with their unit."""
        bounds = [
            f"{words} {bound:g}"
            for words, bound in (("at least", self.at_least), ("at most", self.at_most))
            if bound is not None
        ]
        return " and ".join(bounds) + (f" {self.unit}" if self.unit else "")


def _rates(operation: str, in_flight: int, peer: str, other: str) -> Callable[[Found], Runs]:
    def read(found: Found) -> Runs:
        by_peer = found[operation][str(in_flight)]
        return series.ratio(by_peer[peer], by_peer[other])

    return read


def _p99_by_nats(found: Found) -> Runs:
    own = {one["peer"]: one for one in found["paces"] if one["half_of"] == one["peer"]}
    return series.ratio(own[SERVED]["arrived_p99_ms"], own[NATS]["arrived_p99_ms"])


def _growth(kind: str, large: int) -> Mark:
    return Mark(
        f"publish with {large:,} {kind} / with 100",
        "growth",
        lambda found: series.ratio(found[kind]["large_us"], found[kind]["small_us"]),
        at_most=1.2,
        is_full=lambda found: found[kind]["large"] >= large,
    )


def _is_long(found: Found) -> bool:
    return bool(found["samples"][-1]["at_s"] >= STEADY_SECONDS)


def _flatness(kind: str) -> Callable[[Found], Runs]:
    """Return the second half of a series by its first: medians of both."""

    def read(found: Found) -> Runs:
        samples = [sample[kind] for sample in found["samples"]]
        middle = len(samples) // 2
        return [series.median(samples[middle:]) / series.median(samples[:middle])]

    return read


def _is_whole_flood(found: Found) -> bool:
    return bool(found["phase_seconds"] >= FLOOD_SECONDS)


def _crowd(crowd: str, figure: str) -> Callable[[Found], Runs]:
    return lambda found: [found["phases"][crowd][figure]]


def _is_near(figure: Found, size: int) -> bool:
    """Return whether a figure of the pipeline was measured at about `size` events or messages."""
    return abs(figure["amount"] - size) <= size * NEAR


def _figure(found: Found, job: str, peer: str, size: int) -> Found:
    """Return the figure of the pipeline at `size`; a smaller run may stand for the smallest."""
    figures = [one for one in found["figures"] if (one["job"], one["peer"]) == (job, peer)]
    for one in figures:
        if one["seconds"] and (_is_near(one, size) or (size == SMALL and one["amount"] < size)):
            return one
    raise KeyError(job)


def _pipeline(
    job: str, peer: str, size: int, read: Callable[[Found, Found], float], **bounds: float
) -> Mark:
    """Return a mark of Waypost's figure beside a peer's at the same size."""
    per = {WAYPOST: "", SEQUENTIAL: " / sequential replay"}.get(peer, f" / {peer}")
    what = "memory of " if read is _memory_ratio else ""
    return Mark(
        f"{what}{job}, {SIZE_NAMES[size]}{per}",
        "pipeline",
        lambda found: [read(_figure(found, job, WAYPOST, size), _peer(found, job, peer, size))],
        is_full=lambda found: _is_near(_figure(found, job, WAYPOST, size), size),
        **bounds,
    )


def _peer(found: Found, job: str, peer: str, size: int) -> Found:
    if peer == SEQUENTIAL:  # measured on one journal: it is linear
        return next(one for one in found["figures"] if (one["job"], one["peer"]) == (job, peer))
    return _figure(found, BUILD if job == BUILD_WARM else job, peer, size)


def _time_ratio(ours: Found, theirs: Found) -> float:
    return float(ours["seconds"] / theirs["seconds"])


def _memory_ratio(ours: Found, theirs: Found) -> float:
    return float(ours["peak_bytes"] / theirs["peak_bytes"])


def _rate_ratio(ours: Found, theirs: Found) -> float:
    own, other = (one["amount"] / one["seconds"] for one in (ours, theirs))
    return float(own / other)


def _command(job: str, at_most: float) -> Mark:
    def figure(found: Found) -> Found:
        for one in found["figures"]:
            if one["job"] == job:
                return dict(one)
        raise KeyError(job)

    return Mark(
        f"pipeline {job}", "pipeline", lambda found: [figure(found)["seconds"]],
        at_most=at_most, unit="s",
        is_full=lambda found: job == IMPORT or _is_near(figure(found), SMALL),
    )  # fmt: skip


def _payloads_ratio(found: Found) -> Runs:
    jobs = {one["job"]: one for one in found["figures"] if one["job"].startswith(PAYLOADS)}
    return [1 / _rate_ratio(jobs[f"{PAYLOADS} 16 KB"], jobs[f"{PAYLOADS} 64 B"])]


def _pipeline_growth(job: str) -> Mark:
    def read(found: Found) -> Runs:
        small, large = (_figure(found, job, WAYPOST, size) for size in (MEDIUM, HUGE))
        return [1 / _rate_ratio(large, small)]

    return Mark(f"{job}, time per event, 100 M / 4 M", "pipeline", read, at_most=1.0)


MARKS = (
    Mark("publish, journal, 100 in flight / Redis", "core",
         _rates("publish", 100, JOURNAL, REDIS), at_least=1.1),
    Mark("publish_many by 100 / Redis", "core",
         _rates("publish", 100, MANY, REDIS), at_least=1.3),
    Mark("publish, journal, 1 in flight / Redis", "core",
         _rates("publish", 1, JOURNAL, REDIS), at_least=1.1),
    Mark("lease and ack by 100 / Redis", "core",
         _rates("consume", 100, JOURNAL, REDIS), at_least=1.3),
    Mark("lease and ack by 1,000 / Redis", "core",
         _rates("consume", 1000, JOURNAL, REDIS), at_least=1.0),
    Mark("publish, maildir, 100 in flight / NATS with a sync", "core",
         _rates("publish", 100, MAILDIR, NATS), at_least=5.0),
    Mark("admission alone", "core",
         lambda found: [found["admission_us"]], at_most=8.0, unit="µs"),
    Mark("served round trip, 100 in flight / NATS without a sync", "network",
         _rates("round_trips", 100, SERVED, NATS_DEFAULT), at_least=0.9),
    Mark("served round trip, 100 in flight / NATS with a sync", "network",
         _rates("round_trips", 100, SERVED, NATS), at_least=4.0),
    Mark("served round trip, 1 in flight / NATS with a sync", "network",
         _rates("round_trips", 1, SERVED, NATS), at_least=1.0),
    Mark("served, p99 at half the peak / NATS with a sync", "latency",
         _p99_by_nats, at_most=1.0),
    _growth("subscriptions", LARGE),
    _growth("endpoints", LARGE),
    _growth("senders", LARGE),
    _growth("access rules", min(LARGE, access_rules_max)),
    Mark("publish with a million ids / with none", "ids",
         lambda found: series.ratio(found["many_us"], found["none_us"]), at_most=1.1,
         is_full=lambda found: found["ids"] >= MILLION),
    Mark("longest stall with a million ids", "ids",
         lambda found: [max(found["many_stall_ms"])], at_most=20.0, unit="ms",
         is_full=lambda found: found["ids"] >= MILLION),
    Mark("memory of an idle endpoint", "idle",
         lambda found: [found["endpoint_kb"]], at_most=2.0, unit="KB",
         is_full=lambda found: found["endpoints"] >= LARGE),
    Mark("memory of an idle connection", "agents",
         lambda found: [found["connection_kb"]], at_most=30.0, unit="KB",
         is_full=lambda found: found["loads"][-1]["agents"] >= CONNECTIONS),
    Mark("opening with a million events behind the checkpoint", "opening",
         lambda found: found["behind_seconds"], at_most=8.0, unit="s",
         is_full=lambda found: found["events"] >= MILLION),
    Mark("steady load: memory, second half / first half", "steady",
         _flatness("memory_mb"), at_least=0.9, at_most=1.1, is_full=_is_long),
    Mark("steady load: latency, second half / first half", "steady",
         _flatness("p50_ms"), at_least=0.9, at_most=1.1, is_full=_is_long),
    *(
        Mark(f"flood by {crowd}: latency of others / without", "flood",
             _crowd(crowd, "ratio"), at_most=1.5, is_full=_is_whole_flood)
        for crowd in ("sender", "idle", "frames", "patterns")
    ),
    *(
        Mark(f"flood by {crowd}: memory of the relay", "flood",
             _crowd(crowd, "memory_growth_mb"), at_most=100.0, unit="MB",
             is_full=_is_whole_flood)
        for crowd in ("sender", "idle", "frames", "patterns")
    ),
    _command(RUN_FRESH, at_most=28.0),
    _command(RUN_WARM, at_most=14.0),
    _command(IMPORT, at_most=10.0),
    *(
        _pipeline(job, DUCKDB, size, _time_ratio, at_most=bound)
        for job, bounds in (("ingest", (2.0, 1.5, 1.1)), (BUILD, (8.0, 5.0, 3.5)))
        for size, bound in zip((SMALL, MEDIUM, LARGER), bounds, strict=True)
    ),
    _pipeline(BUILD_WARM, DUCKDB, SMALL, _time_ratio, at_most=5.0),
    *(
        _pipeline(f"backtest, {kind}", SEQUENTIAL, size, _rate_ratio, at_least=bound)
        for kind, bounds in (("same settings", (7.0, 12.0)), ("halved limits", (2.5, 5.0)))
        for size, bound in zip((MEDIUM, LARGER), bounds, strict=True)
    ),
    *(_pipeline(job, DUCKDB, LARGER, _memory_ratio, at_most=0.6) for job in ("ingest", BUILD)),
    Mark("ingest with payloads of 16 KB / of 64 B", "pipeline", _payloads_ratio, at_most=1.3),
    *(_pipeline_growth(job) for job in ("ingest", BUILD)),
)  # fmt: skip


def marks_table(results: dict[str, Any]) -> Table:
    """Return every mark of the benchmarks that ran: measured, wanted, reached or not."""
    rows = []
    for mark in MARKS:
        if mark.benchmark in results["benchmarks"]:
            runs = mark.measured(results)
            if runs is None:
                rows.append([mark.name, "not measured", mark.bound_text, "–"])
            else:
                text = series.ratio_text(runs) + (f" {mark.unit}" if mark.unit else "")
                rows.append([mark.name, text, mark.bound_text, mark.outcome(results, runs)])
    caption = "median (lowest–highest) of the runs"
    if results["quick"]:
        caption += "; a quick run: rough figures"
    return Table("Marks", ["figure", "measured", "mark", "reached"], rows, caption)
