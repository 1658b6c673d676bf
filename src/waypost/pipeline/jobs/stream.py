"""`stream`: builds tables while relays write their journals, with Structured Streaming.

One query follows all journals. Each of its batches is one commit of the lake, with the events and
the position in each segment.

Rule 1  The lake records what was ingested, the checkpoint only where to read next. Events that the
        lake holds are dropped, so a batch repeated after a crash changes nothing, and losing the
        checkpoint costs reading one segment of each relay again.
Rule 2  Tables are built by a thread of their own, with pauses of `build_every_s`, and at the end.
        Events are committed meanwhile: a build of a long day takes longer than a batch may wait.
Rule 3  `ingest` completes the segments of a stream: the manifest lists a segment as unsealed until
        `ingest` has read all of it.
Rule 4  Copies of one journal, at nodes of a cluster, are each read in order, as far as its log has
        them. So an event of a batch is new to the lake in all of them or in none; it is kept once.
"""

import contextlib
import hashlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from waypost.pipeline.datasource import register
from waypost.pipeline.datasource.source import FORMAT
from waypost.pipeline.errors import JournalUnusable, LakeUnusable
from waypost.pipeline.journal.sources import JournalSource
from waypost.pipeline.lake.delta import EVENTS_WITH_COMMENTS, update_all_logs, update_logs
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import Change, Lake, open_lake
from waypost.pipeline.lake.manifest import IngestedSegment, Manifest
from waypost.pipeline.lake.packs import Upkeep
from waypost.pipeline.spark.partitioning import INITIAL_PARTITIONS

Build = Callable[[Lake], object]

_COMMIT_ATTEMPTS = 3
_POLL_S = 0.2
_POOL = "spark.scheduler.pool"
STREAM_SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    # A batch waits until a task of a build ends: short tasks, and many of them.
    "spark.sql.files.maxPartitionBytes": "8m",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    INITIAL_PARTITIONS: "64",
}
"""Spark settings with which builds do not hold up events; they apply when a session starts."""
# Events wait for each batch, so only builds search for leftovers of jobs that died.
_WITHOUT_SWEEPS = Upkeep(sweep_every=1 << 62)


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a stream. `checkpoint` is a directory; by default one inside the lake."""

    checkpoint: str | None = None
    every_s: float = 2.0
    """Seconds between reads of new events."""

    build_every_s: float = 15.0
    """Seconds between the end of a build and the next one."""

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
    sources = sorted(sources)
    has_copies = any(one.relay == other.relay for one, other in pairwise(sources))
    build = build or _build
    before = open_lake(spark, lake_path, create=True).manifest
    update_all_logs(lake_path.rstrip("/"), before)  # batches update that of `events` only
    register(spark)
    stop = stop or threading.Event()
    checkpoint = _checkpoint(lake_path, sources, options)
    build_every_s = None if options.until_idle else options.build_every_s

    def run(**trigger: Any) -> None:
        handler = _BatchHandler(lake_path, has_copies, build_every_s, build, spark)
        writer = _new_events(spark, sources, before).writeStream.foreachBatch(handler)
        with _pool_of_its_own(spark):
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
    """Ingests each batch, and builds the tables in a thread, every `build_every_s` seconds.

    None is not at all. With `has_copies`, a batch may have an event several times. Over Spark
    Connect it runs in another process, without `spark`: the session of its batches is used then.
    In this process, that session has no adaptive execution.
    """

    def __init__(
        self,
        lake_path: str,
        has_copies: bool,
        build_every_s: float | None,
        build: Build,
        spark: SparkSession | None = None,
    ) -> None:
        self._arguments = (lake_path, has_copies, build_every_s, build)
        self._spark = spark
        self._busy = threading.Lock()
        self._builder: threading.Thread | None = None
        self._is_new = threading.Event()
        self._ending = threading.Event()
        self._failure: Exception | None = None

    def __reduce__(self) -> tuple[type["_BatchHandler"], tuple[str, bool, float | None, Build]]:
        return _BatchHandler, self._arguments

    def __call__(self, rows: DataFrame, _batch: int) -> None:
        """Ingest a batch. Raises what has ended the builds."""
        lake_path, has_copies, build_every_s, _ = self._arguments
        with self._busy:
            if self._ending.is_set():  # returning would mark the batch as ingested
                raise JournalUnusable("the stream is stopping")
            if self._failure is not None:
                raise self._failure
            ingest_batch(rows.dropDuplicates(["relay", "seq"]) if has_copies else rows, lake_path)
            if build_every_s is not None and self._builder is None:
                spark = self._spark or rows.sparkSession
                self._builder = threading.Thread(target=self._build, args=(spark,), daemon=True)
                self._builder.start()
        self._is_new.set()

    def end(self) -> None:
        """Wait for the current batch and the current build, and let no other begin."""
        with self._busy:
            self._ending.set()
        self._is_new.set()
        if self._builder is not None:
            self._builder.join()

    def _build(self, spark: SparkSession) -> None:
        lake_path, _, build_every_s, build = self._arguments
        while not self._ending.wait(build_every_s):
            self._is_new.wait()
            self._is_new.clear()
            if self._ending.is_set():
                return
            try:
                lake = open_lake(spark, lake_path)
                if lake.manifest.unbuilt:
                    build(lake)
            except Exception as problem:
                self._failure = problem
                return


def ingest_batch(rows: DataFrame, lake_path: str) -> Lake:
    """Commit the events in `rows` that are new to the lake. Raises `LakeUnusable`."""
    for attempts_left in reversed(range(_COMMIT_ATTEMPTS)):
        lake = open_lake(rows.sparkSession, lake_path, create=True, upkeep=_WITHOUT_SWEEPS)
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


@contextlib.contextmanager
def _pool_of_its_own(spark: SparkSession) -> Iterator[None]:
    """Let what starts in the block take turns with builds: tasks of both would wait in one queue.

    Over Spark Connect, the server decides.
    """
    if is_remote():
        yield
        return
    spark.sparkContext.setLocalProperty(_POOL, "stream")
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty(_POOL, None)  # type: ignore[arg-type]


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
    for relay in dict.fromkeys(source.relay for source in sources):
        was, now = before.relays.get(relay, {}), after.relays.get(relay, {})
        events += sum(one.events for one in now.values()) - sum(one.events for one in was.values())
        last_seq[relay] = max((one.last_seq for one in now.values()), default=0)
    commits = after.version - before.version
    return StreamSummary(relays=len(last_seq), events=events, commits=commits, last_seq=last_seq)


def _build(lake: Lake) -> object:
    from waypost.pipeline.tables.build import build

    return build(lake)


def _update_delta_logs(lake: Lake) -> list[str]:
    from waypost.pipeline.tables.build import update_delta_logs

    return update_delta_logs(lake)
