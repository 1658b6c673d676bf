"""`stream`: builds tables while relays write their journals, with Structured Streaming.

One query follows all journals. Each of its batches is one commit of the lake, with the events and
the position in each segment.

Rule 1  The lake records what was ingested, the checkpoint only where to read next. Events that the
        lake holds are dropped, so a batch repeated after a crash changes nothing, and losing the
        checkpoint costs reading one segment of each relay again.
Rule 2  Tables are built at most every `build_every_s`, and at the end.
Rule 3  `ingest` completes the segments of a stream: the manifest lists a segment as unsealed until
        `ingest` has read all of it.
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
from waypost.pipeline.lake.delta import EVENTS_WITH_COMMENTS, update_logs
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import Change, Lake, open_lake
from waypost.pipeline.lake.manifest import IngestedSegment, Manifest

Build = Callable[[Lake], object]

_COMMIT_ATTEMPTS = 3
_POLL_S = 0.2


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a stream. `checkpoint` is a directory; by default one inside the lake."""

    checkpoint: str | None = None
    every_s: float = 2.0
    """Seconds between reads of new events."""

    build_every_s: float = 15.0
    until_idle: bool = False
    """Ingest the existing events, build the tables, and end."""


class StreamSummary(msgspec.Struct, kw_only=True):
    """The result of a stream. `commits` includes those of table builds."""

    relays: int
    events: int
    commits: int
    last_seq: dict[str, int]
    notes: list[str] = []
    """Why Delta tables are not up to date."""


def stream(
    spark: SparkSession,
    lake_path: str,
    sources: Iterable[JournalSource],
    options: StreamOptions | None = None,
    *,
    stop: threading.Event | None = None,
    build: Build | None = None,
) -> StreamSummary:
    """Follow the journals of `sources` into the lake until `stop` is set.

    Raises `JournalUnusable` or `LakeUnusable` if it cannot continue; commits stay.
    """
    options = options or StreamOptions()
    sources = sorted(sources, key=lambda source: source.relay)
    build = build or _build
    before = open_lake(spark, lake_path, create=True).manifest
    register(spark)
    stop = stop or threading.Event()
    checkpoint = _checkpoint(lake_path, sources, options)

    def run(**trigger: Any) -> None:
        handler = _BatchHandler(lake_path, options.build_every_s, build)
        writer = _new_events(spark, sources, before).writeStream.foreachBatch(handler)
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        _run(query, handler, stop)

    if options.until_idle:
        # After a kill, Spark first repeats the batch that was planned, which the lake may hold.
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
    summary = _summary(before, lake.manifest, sources)
    summary.notes = _update_delta_logs(lake)
    return summary


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set, for `stream(stop=…)`. Main thread only."""
    stop = threading.Event()
    previous = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _BatchHandler:
    """Ingests each batch. Over Spark Connect it runs in another process."""

    def __init__(self, lake_path: str, build_every_s: float, build: Build) -> None:
        self._arguments = (lake_path, build_every_s, build)
        self._built_at = time.monotonic()
        self._busy = threading.Lock()
        self._ending = False

    def __reduce__(self) -> tuple[type["_BatchHandler"], tuple[str, float, Build]]:
        return _BatchHandler, self._arguments

    def __call__(self, rows: DataFrame, _batch: int) -> None:
        """Ingest a batch, and build the tables if a build is due."""
        lake_path, build_every_s, build = self._arguments
        with self._busy:
            if self._ending:  # returning would mark the batch as ingested
                raise JournalUnusable("the stream is stopping")
            lake = ingest_batch(rows, lake_path)
            if lake.manifest.unbuilt and time.monotonic() - self._built_at >= build_every_s:
                build(lake)
                self._built_at = time.monotonic()

    def end(self) -> None:
        """Wait for the current batch, and let no other begin."""
        with self._busy:
            self._ending = True


def ingest_batch(rows: DataFrame, lake_path: str) -> Lake:
    """Commit the events in `rows` that are new to the lake. Raises `LakeUnusable`."""
    for attempts_left in reversed(range(_COMMIT_ATTEMPTS)):
        lake = open_lake(rows.sparkSession, lake_path, create=True)
        change = lake.begin()
        new = _only_new(rows, lake.manifest)
        batch = change.append_events(new)
        if not batch.days:
            return lake
        _record(change, change.read_batch(batch))
        try:
            change.commit()
        except LakeUnusable:
            if not attempts_left:  # another job committed first: retry on its version
                raise
            continue
        update_logs(lake.path, lake.manifest, EVENTS_WITH_COMMENTS)  # the summary has the notes
        return lake
    raise AssertionError("the last attempt returns or raises")


def _only_new(rows: DataFrame, manifest: Manifest) -> DataFrame:
    """Drop the events that the lake holds."""
    for relay, segments in manifest.relays.items():
        last_seq = max((one.last_seq for one in segments.values()), default=0)
        rows = rows.where((F.col("relay") != relay) | (F.col("seq") > last_seq))
    return rows


def _record(change: Change, new: DataFrame) -> None:
    """Record in the draft manifest how far each segment was read."""
    read = new.groupBy("relay", "segment").agg(
        F.max("seq").alias("last_seq"), F.count(F.lit(1)).alias("events")
    )
    for row in read.collect():
        segments = change.draft.relays.setdefault(row.relay, {})
        known = segments.get(row.segment, IngestedSegment(row.segment - 1, 0, 0))
        segments[row.segment] = IngestedSegment(
            last_seq=row.last_seq,
            bytes=0,
            events=known.events + row.events,
            missing=known.missing + row.last_seq - known.last_seq - row.events,
            sealed=False,
        )


def _new_events(spark: SparkSession, sources: list[JournalSource], known: Manifest) -> DataFrame:
    """Return a stream of all journals, each from the newest segment that the lake holds."""
    each = []
    for source in sources:
        reader = spark.readStream.format(FORMAT).option("relay", source.relay)
        reader = reader.option("damaged", "skip")
        newest = max(known.relays.get(source.relay, {}), default=None)
        if newest is not None:
            reader = reader.option("start_segment", str(newest))
        each.append(reader.load(source.path))
    return reduce(DataFrame.unionByName, each).select(*EVENTS.fieldNames())


def _checkpoint(lake_path: str, sources: list[JournalSource], options: StreamOptions) -> str:
    """Return the checkpoint directory: each set of journals has its own."""
    names = "\n".join(f"{source.relay}={source.path}" for source in sources)
    digest = hashlib.sha256(names.encode()).hexdigest()[:12]
    return f"{options.checkpoint or lake_path.rstrip('/') + '/checkpoints'}/{digest}"


def _run(query: StreamingQuery, handler: _BatchHandler, stop: threading.Event) -> None:
    """Wait until the query ends, or end it when `stop` is set."""
    try:
        while query.isActive and not stop.wait(_POLL_S):
            pass
        handler.end()
    finally:
        query.stop()
    problem = query.exception()
    if problem is not None and not stop.is_set():
        raise JournalUnusable(f"the stream failed: {_cause(problem)}")


def _cause(problem: Exception) -> str:
    """Return the line of Spark's long report that names the error."""
    lines = str(problem).strip().splitlines()
    own = [line for line in lines if "waypost.pipeline.errors." in line]
    return own[-1].partition("waypost.pipeline.errors.")[2] if own else lines[0]


def _summary(before: Manifest, after: Manifest, sources: list[JournalSource]) -> StreamSummary:
    last_seq: dict[str, int] = {}
    events = 0
    for source in sources:
        was, now = before.relays.get(source.relay, {}), after.relays.get(source.relay, {})
        events += sum(one.events for one in now.values()) - sum(one.events for one in was.values())
        last_seq[source.relay] = max((one.last_seq for one in now.values()), default=0)
    commits = after.version - before.version
    return StreamSummary(relays=len(sources), events=events, commits=commits, last_seq=last_seq)


def _build(lake: Lake) -> object:
    from waypost.pipeline.tables.build import build

    return build(lake)


def _update_delta_logs(lake: Lake) -> list[str]:
    from waypost.pipeline.tables.build import update_delta_logs

    return update_delta_logs(lake)
