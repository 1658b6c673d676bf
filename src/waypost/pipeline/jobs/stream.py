"""`stream`: journals become tables while their relays write them, with Structured Streaming.

One query follows all journals. Each of its batches is one commit of the lake, which holds the
events and how far each segment was read.

Rule 1  The lake says what was taken in, the checkpoint only where to look next. An event the lake
        has is dropped, so a batch that comes again after a crash changes nothing, and a checkpoint
        that is lost costs reading one segment of each relay again.
Rule 2  Tables are built at most every `build_every_s`, and at the end.
Rule 3  What a stream began, `ingest` finishes: a segment stays unsealed in the manifest until
        `ingest` has seen the whole of it.
"""

import contextlib
import hashlib
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from waypost.pipeline.datasource import register
from waypost.pipeline.datasource.source import FORMAT
from waypost.pipeline.errors import JournalUnusable, LakeUnusable
from waypost.pipeline.journal.sources import JournalSource
from waypost.pipeline.lake.compaction import PARTS_MAX, compacted, sweep
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import Change, Lake, open_lake
from waypost.pipeline.lake.manifest import Manifest, Segment

Build = Callable[[Lake], object]

_TRIES = 3
_LOOK_EVERY_S = 0.2


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to follow. `checkpoint` is a directory; by default one inside the lake."""

    checkpoint: str | None = None
    every_s: float = 2.0
    """How often to look for new events."""

    build_every_s: float = 15.0
    until_idle: bool = False
    """Take in what is there, build, and end."""


class Streamed(msgspec.Struct, kw_only=True):
    """What a stream took in, from its start to its end. `commits` counts builds, too."""

    relays: int
    events: int
    commits: int
    last_seq: dict[str, int]


def stream(
    spark: SparkSession,
    lake_path: str,
    places: Iterable[JournalSource],
    options: StreamOptions | None = None,
    *,
    stop: threading.Event | None = None,
    build: Build | None = None,
) -> Streamed:
    """Follow the journals at `places` into the lake until `stop` is set.

    Raises `JournalUnusable` or `LakeUnusable` if it cannot go on; what was committed stays.
    """
    options = options or StreamOptions()
    places = sorted(places, key=lambda place: place.relay)
    build = build or _build
    before = open_lake(spark, lake_path, create=True).manifest
    register(spark)
    stop = stop or threading.Event()
    checkpoint = _checkpoint(lake_path, places, options)

    def run(**trigger: Any) -> None:
        follow = _Follow(lake_path, options.build_every_s, build)
        writer = _followed(spark, places, before).writeStream.foreachBatch(follow)
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        _run(query, follow, stop)

    if options.until_idle:
        # After a kill, this does no more than the killed one had planned, and the lake may have it.
        run(availableNow=True)
    else:
        run(processingTime=f"{round(options.every_s * 1000)} milliseconds")
    lake, version = open_lake(spark, lake_path, create=True), None
    while options.until_idle and lake.manifest.version != version:
        version = lake.manifest.version
        run(availableNow=True)
        lake = open_lake(spark, lake_path, create=True)
    if lake.manifest.unbuilt:
        build(lake)
    return _streamed(before, lake.manifest, places)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, for `stream(stop=…)`. For the main thread only."""
    stop = threading.Event()
    kept = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


class _Follow:
    """What is done with each batch. It may run in another process than the one that started it."""

    def __init__(self, lake_path: str, build_every_s: float, build: Build) -> None:
        self._given = (lake_path, build_every_s, build)
        self._built_at = time.monotonic()
        self._busy = threading.Lock()
        self._ending = False

    def __reduce__(self) -> tuple[type["_Follow"], tuple[str, float, Build]]:
        return _Follow, self._given

    def __call__(self, rows: DataFrame, _batch: int) -> None:
        """Take in a batch, and build if it is time to."""
        lake_path, build_every_s, build = self._given
        with self._busy:
            if self._ending:  # a batch that ends well counts as taken in, so this must not
                raise JournalUnusable("the stream is ending")
            lake = take_in(rows, lake_path)
            if lake.manifest.unbuilt and time.monotonic() - self._built_at >= build_every_s:
                build(lake)
                self._built_at = time.monotonic()

    def end(self) -> None:
        """Wait for the batch under way, and let no other begin."""
        with self._busy:
            self._ending = True


def take_in(rows: DataFrame, lake_path: str, parts_max: int = PARTS_MAX) -> Lake:
    """Commit those of `rows` that the lake does not have. Raises `LakeUnusable`."""
    for left in reversed(range(_TRIES)):
        lake = open_lake(rows.sparkSession, lake_path, create=True)
        before, change = lake.manifest, lake.begin()
        new = _unknown(rows, before)
        days = change.append_events(compacted(change, new, parts_max))
        if not days:
            return lake
        _note(change, _unknown(change.read_batch(change.draft.version, days), before))
        try:
            change.commit()
        except LakeUnusable:
            if not left:  # else another job was quicker, and this one looks at the lake again
                raise
            continue
        sweep(lake, before, parts_max)
        return lake
    raise AssertionError("a try either returns or raises")


def _unknown(rows: DataFrame, manifest: Manifest) -> DataFrame:
    """Leaves out what the lake has."""
    for relay, segments in manifest.relays.items():
        last_seq = max((one.last_seq for one in segments.values()), default=0)
        rows = rows.where((F.col("relay") != relay) | (F.col("seq") > last_seq))
    return rows


def _note(change: Change, new: DataFrame) -> None:
    """Write into the draft how far each segment was read."""
    read = new.groupBy("relay", "segment").agg(
        F.max("seq").alias("last_seq"), F.count(F.lit(1)).alias("events")
    )
    for row in read.collect():
        segments = change.draft.relays.setdefault(row.relay, {})
        known = segments.get(row.segment, Segment(row.segment - 1, 0, 0))
        segments[row.segment] = Segment(
            last_seq=row.last_seq,
            bytes=0,
            events=known.events + row.events,
            missing=known.missing + row.last_seq - known.last_seq - row.events,
            sealed=False,
        )


def _followed(spark: SparkSession, places: list[JournalSource], known: Manifest) -> DataFrame:
    """The events of all journals from about where the lake stands."""
    each = []
    for place in places:
        reader = spark.readStream.format(FORMAT).option("relay", place.relay)
        reader = reader.option("damaged", "skip")
        newest = max(known.relays.get(place.relay, {}), default=None)
        if newest is not None:
            reader = reader.option("start_segment", str(newest))
        each.append(reader.load(place.path))
    return reduce(DataFrame.unionByName, each).select(*EVENTS.fieldNames())


def _checkpoint(lake_path: str, places: list[JournalSource], options: StreamOptions) -> str:
    """A checkpoint is good for one set of journals only; another set begins its own."""
    names = "\n".join(f"{place.relay}={place.path}" for place in places)
    digest = hashlib.sha256(names.encode()).hexdigest()[:12]
    return f"{options.checkpoint or lake_path.rstrip('/') + '/checkpoints'}/{digest}"


def _run(query: StreamingQuery, follow: _Follow, stop: threading.Event) -> None:
    """Wait for the end of the query, or bring it about."""
    try:
        while query.isActive and not stop.wait(_LOOK_EVERY_S):
            pass
        follow.end()
    finally:
        query.stop()
    problem = query.exception()
    if problem is not None and not stop.is_set():
        raise JournalUnusable(f"the stream ended: {_cause(problem)}")


def _cause(problem: Exception) -> str:
    """The one line of a long report that says what is wrong."""
    lines = str(problem).strip().splitlines()
    told = [line for line in lines if "waypost.pipeline.errors." in line]
    return told[-1].partition("waypost.pipeline.errors.")[2] if told else lines[0]


def _streamed(before: Manifest, after: Manifest, places: list[JournalSource]) -> Streamed:
    last_seq: dict[str, int] = {}
    events = 0
    for place in places:
        was, now = before.relays.get(place.relay, {}), after.relays.get(place.relay, {})
        events += sum(one.events for one in now.values()) - sum(one.events for one in was.values())
        last_seq[place.relay] = max((one.last_seq for one in now.values()), default=0)
    commits = after.version - before.version
    return Streamed(relays=len(places), events=events, commits=commits, last_seq=last_seq)


def _build(lake: Lake) -> object:
    from waypost.pipeline.tables.build import build

    return build(lake)
