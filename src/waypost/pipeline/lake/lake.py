"""A lake: immutable Parquet files, and a manifest that lists those that count.

    <lake>/manifest/slot=0|1/            the two newest manifests, each one text file
    <lake>/<table>/V-ID/                 a pack: written once, for version V by the writer ID
    <lake>/<table>/V-ID/pack=N/          several packs that were written at once

Rule 1  A file is written once, to a directory of a name that is used once. What a job that died
        has left can therefore never become part of a later version.
Rule 2  The manifest is written last. A job that dies earlier has changed nothing.
Rule 3  Readers go through a manifest. The files of a version stay for the next versions, and for
        minutes (`Upkeep`); a read that lasts longer may fail, and never mixes versions.
Rule 4  What no version lists any more is removed when a later version is committed: first the
        directories, then their names from the manifest.
Rule 5  What no version lists yet may be the work of a job that still commits, on top of later
        versions. It is removed after a day, judged by a manifest that was just committed.

Only Spark's readers and writers are needed, so a lake can be wherever Spark can write.
"""

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Iterable
from datetime import date, timedelta

import msgspec
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.files import PATTERN_CHARACTERS, local_path, sees_path
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.manifest import (
    FORMAT,
    DataFile,
    EventBatch,
    Manifest,
    Retired,
    decode_manifest,
    encode_manifest,
    rebase,
)
from waypost.pipeline.lake.manifest_files import decode_head, newest_manifest, write_manifest
from waypost.pipeline.lake.packs import (
    Upkeep,
    days_within,
    files_to_merge,
    files_to_rewrite,
    files_with,
    first_days_of_packs,
    total_bytes,
    writes_in_use,
)
from waypost.pipeline.lake.schemas import columns
from waypost.pipeline.lake.storage import find_writes, remove, written_files
from waypost.pipeline.spark.failures import PATH_ERRORS

EVENTS_TABLE = "events"
EVENT_ORDER = ("kind", "sender", "endpoint")
"""How events are sorted in a row group, so that a look at some kinds, at a sender, or at the
messages of an endpoint, skips most pages. Only arrivals have a sender."""

PAGE_ROWS_MAX = 4096
"""Rows of a page of `events`: what a look reads at least."""

UNIQUE_COLUMNS = (
    "seq",
    "id",
    "parent",
    "at_us",
    "arrived_at",
    "due_at",
    "first_leased_at",
    "finished_at",
    "died_at",
    "wait_ms",
    "total_ms",
)
"""Values of these columns hardly repeat, so a dictionary costs time and makes files larger."""

OLDER_FORMAT = 1
"""Lakes with a directory for each day."""

_EPOCH = date(1970, 1, 1)
_DAY = columns("day date")
# To read the newest version and to write the next are two steps. Between processes, only the
# second look at the version helps; a stream has two threads that commit all the time.
_COMMITS = threading.Lock()
_UNCUT_PACKS_MAX = 2
"""What is at most this many times the wanted size stays one pack."""

_PARQUET = {
    "parquet.compression.codec.zstd.level": "1",
    **{f"parquet.enable.dictionary#{name}": "false" for name in UNIQUE_COLUMNS},
}


class Lake:
    """A lake at the version that was opened or last committed."""

    def __init__(
        self, spark: SparkSession, path: str, manifest: Manifest, upkeep: Upkeep | None = None
    ) -> None:
        self.spark = spark
        self.path = path
        self.manifest = manifest
        self.upkeep = upkeep or Upkeep()

    def read(self, table: str, schema: StructType, days: Iterable[str] | None = None) -> DataFrame:
        """Return a table, or some days of it; an empty one has its columns, too."""
        return _read_days(self, self.manifest, table, schema, days)

    def begin(self) -> "Change":
        """Begin the next version."""
        return Change(self)


class Change:
    """The next version of a lake: readable only through this object until `commit`."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.draft = decode_manifest(encode_manifest(lake.manifest))
        self.draft.version += 1
        self._replaced: list[str] = []

    def read(self, table: str, schema: StructType, days: Iterable[str] | None = None) -> DataFrame:
        """Return a table as of this version."""
        return _read_days(self.lake, self.draft, table, schema, days)

    def read_batch(self, batch: EventBatch) -> DataFrame:
        """Return the events of one batch."""
        files = [one for one in self.draft.tables[EVENTS_TABLE] if one.pack == batch.pack]
        return _read_files(self.lake, EVENTS_TABLE, EVENTS, files)

    def append_events(self, events: DataFrame) -> EventBatch:
        """Add a batch to `events`; returns it."""
        seen = Observation()
        pack = self.new_pack()
        self._write_events(pack, _observed(events, seen))
        return self.add_events(pack, _days(seen))

    def new_pack(self) -> str:
        """Return the name of a directory, below that of a table, that no job has used."""
        return f"{self.draft.version}-{uuid.uuid4().hex[:16]}"

    def add_events(self, pack: str, days: list[str]) -> EventBatch:
        """List the events of `days` that were written to `pack`; returns them as a batch."""
        batch = EventBatch(pack, days)
        if days:
            known = set(self.draft.days(EVENTS_TABLE))
            self._replace(EVENTS_TABLE, [], pack, sorted(known.union(days)))
            self.draft.unbuilt.append(batch)
        else:
            remove(self.lake.spark, self.lake.path, f"{EVENTS_TABLE}/{pack}")
        return batch

    def rewrite(self, table: str, rows: DataFrame, days: Iterable[str] | None = None) -> int:
        """Replace `days` of a table by `rows`, which are all of those days; None is every day.

        Returns the number of rows. Several tables can be rewritten at the same time.
        """
        seen = Observation()
        schema, known = rows.schema, self.draft.days(table)
        replaced = set(known if days is None else days)
        files = self.draft.tables.get(table, [])
        old = files_to_rewrite(files, [day for day in known if day in replaced], self.lake.upkeep)
        kept = [day for day in known if day not in replaced]
        rows = _observed(rows, seen)
        if days_within(old, kept):
            others = _on_days(_read_files(self.lake, table, schema, old), kept, known)
            rows = rows.unionByName(others.coalesce(self._packs_for(old)))
        pack = self.new_pack()
        self._write(table, pack, rows, self._cuts(table, old))
        self._replace(table, old, pack, sorted({*kept, *_days(seen)}))
        return seen.get["rows"] or 0

    def merge_events(self) -> None:
        """Write the small packs of `events` together if they have become many.

        Batches that are not in the tables yet stay as they are: `build` reads each of them.
        """
        unbuilt = {batch.pack for batch in self.draft.unbuilt}
        built = [one for one in self.draft.tables.get(EVENTS_TABLE, []) if one.pack not in unbuilt]
        small = files_to_merge(built, self.lake.upkeep)
        if not small:
            return
        rows = _read_files(self.lake, EVENTS_TABLE, EVENTS, small)
        pack = self.new_pack()
        self._write_events(pack, rows.coalesce(self._packs_for(small)))
        self._replace(EVENTS_TABLE, small, pack, self.draft.days(EVENTS_TABLE))

    def commit(self) -> None:
        """Make this the current version, on top of changes to other parts of the lake.

        Raises `LakeUnusable` if another job committed a change to the same first.
        """
        lake = self.lake
        with _COMMITS:
            self._remove_retired()
            self._rebase()
            now_ms, version = int(time.time() * 1000), self.draft.version
            self.draft.retired += [Retired(one, version, now_ms) for one in self._replaced]
            write_manifest(lake.spark, lake.path, self.draft)
            lake.manifest = self.draft
            self._remove_leftovers()

    def _rebase(self) -> None:
        """Continue from the newest version, if it is not the one that this began with."""
        lake = self.lake
        newest = newest_manifest(lake.spark, lake.path)
        if (decode_head(newest).version if newest else 0) == lake.manifest.version:
            return
        theirs = _decoded(lake.path, newest) or Manifest()
        rebased = rebase(self.draft, lake.manifest, theirs, EVENTS_TABLE)
        if rebased is None:
            raise LakeUnusable(
                f"another job committed to {lake.path} first: nothing was changed, run this job"
                " again"
            )
        self.draft = rebased

    def retire(self, directories: Iterable[str]) -> None:
        """Have directories, named from the lake's, removed once no reader needs them."""
        self._replaced.extend(directories)

    def _write_events(self, pack: str, events: DataFrame) -> None:
        in_order = events.sortWithinPartitions(*EVENT_ORDER, "seq")
        writer = in_order.write.option("parquet.page.row.count.limit", str(PAGE_ROWS_MAX))
        writer.options(**_PARQUET).parquet(f"{self.lake.path}/{EVENTS_TABLE}/{pack}")

    def _write(self, table: str, pack: str, rows: DataFrame, cuts: Iterable[str] = ()) -> None:
        """Write rows to a new directory, cut into packs that begin on the days `cuts`."""
        first_days = [F.lit(day).cast("date") for day in cuts]
        writer = rows.write
        if first_days:
            number = F.size(F.filter(F.array(*first_days), lambda first: first <= F.col("day")))
            writer = rows.withColumn("pack", number).hint("rebalance", "pack").write
            writer = writer.partitionBy("pack")
        writer.options(**_PARQUET).parquet(f"{self.lake.path}/{table}/{pack}")

    def _replace(self, table: str, old: list[DataFile], pack: str, days: list[str]) -> None:
        """List the files of a write instead of `old`; `days` are those of the table from now on."""
        written = written_files(self.lake.spark, f"{self.lake.path}/{table}", pack)
        files = self.draft.tables.get(table, [])
        gone = {one.pack for one in old}
        self.draft.tables[table] = [one for one in files if one.pack not in gone] + written
        self.draft.table_days[table] = days
        self.retire(f"{table}/{one}" for one in sorted(gone))
        if not written:
            remove(self.lake.spark, self.lake.path, f"{table}/{pack}")

    def _packs_for(self, files: list[DataFile]) -> int:
        return -(-total_bytes(files) // self.lake.upkeep.pack_bytes)

    def _cuts(self, table: str, old: list[DataFile]) -> list[str]:
        """Return the days at which to cut what replaces `old`: none unless it is large."""
        packs = self._packs_for(old)
        if packs <= _UNCUT_PACKS_MAX:
            return []
        days = _read_files(self.lake, table, _DAY, old).groupBy("day").count()
        return first_days_of_packs({str(row.day): row["count"] for row in days.collect()}, packs)

    def _remove_retired(self) -> None:
        upkeep, draft = self.lake.upkeep, self.draft
        until_ms = int((time.time() - upkeep.keep_s) * 1000)
        until = draft.version - upkeep.keep_versions
        over = [one for one in draft.retired if one.version <= until and one.at_ms <= until_ms]
        for one in over:
            remove(self.lake.spark, self.lake.path, one.directory)
        draft.retired = [one for one in draft.retired if one not in over]

    def _remove_leftovers(self) -> None:
        """Remove, now and then, what jobs that died have written for earlier versions."""
        lake, upkeep, current = self.lake, self.lake.upkeep, self.draft
        if current.version % upkeep.sweep_every:
            return
        before_s = time.time() - upkeep.leftover_s
        with contextlib.suppress(*PATH_ERRORS):  # the change is committed: a later one repeats it
            found = find_writes(lake.spark, lake.path, current.tables, before_s)
            # Only this manifest lists what others have committed since this job began.
            for directory in found.keys() - writes_in_use(current):
                if found[directory] < current.version:
                    remove(lake.spark, lake.path, directory)


def open_lake(
    spark: SparkSession, path: str, *, create: bool = False, upkeep: Upkeep | None = None
) -> Lake:
    """Open the lake at `path`; with `create`, a missing one is empty. Raises `LakeUnusable`."""
    path = path.rstrip("/")
    _require_no_pattern(spark, path)
    manifest = _decoded(path, newest_manifest(spark, path))
    if manifest is None and not create:
        raise LakeUnusable(
            f"no lake at {path}: create one with `waypost pipeline ingest --journal DIR --lake"
            f" {path}`"
        )
    return Lake(spark, path, manifest or Manifest(), upkeep)


def _require_no_pattern(spark: SparkSession, path: str) -> None:
    # Spark completes a relative path first: the directories above count as well.
    whole = os.path.abspath(local_path(path)) if sees_path(spark, path) else path
    if PATTERN_CHARACTERS.search(whole):
        raise LakeUnusable(
            f"{whole!r:.200} does not name one lake: give a directory without wildcards or brackets"
            " in its path"
        )


def _decoded(path: str, text: bytes | None) -> Manifest | None:
    """Return a manifest, None if there is none. Raises `LakeUnusable`."""
    if text is None:
        return None
    found = decode_head(text).format
    if found == OLDER_FORMAT:
        raise LakeUnusable(
            f"{path} was written by an earlier version of Waypost: convert it once with `waypost"
            f" pipeline convert --lake {path}`"
        )
    if found != FORMAT:
        raise LakeUnusable(
            f"{path} has lake format {found}, and this version of Waypost reads format"
            f" {FORMAT}: use the version that wrote it"
        )
    try:
        return decode_manifest(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise LakeUnusable(f"invalid manifest in {path}: {problem}") from None


def _observed(rows: DataFrame, seen: Observation) -> DataFrame:
    """Have days and rows counted while they are written."""
    # Days as integers: formatting a text for every row would cost more.
    numbers = F.collect_set(F.unix_date("day")).alias("days")
    return rows.observe(seen, numbers, F.count(F.lit(1)).alias("rows"))


def _days(seen: Observation) -> list[str]:
    return sorted(str(_EPOCH + timedelta(days=number)) for number in seen.get["days"] or [])


def _read_days(
    lake: Lake, manifest: Manifest, table: str, schema: StructType, days: Iterable[str] | None
) -> DataFrame:
    files, known = manifest.tables.get(table, []), manifest.days(table)
    if days is None:
        return _read_files(lake, table, schema, files)
    asked = set(days)
    wanted = [day for day in known if day in asked]
    files = files_with(files, wanted)
    return _on_days(_read_files(lake, table, schema, files), wanted, days_within(files, known))


def _on_days(rows: DataFrame, wanted: list[str], known: list[str]) -> DataFrame:
    """Return the rows on the days `wanted`, of rows on the days `known`."""
    if wanted == known:
        return rows
    days: Column = F.col("day")
    between = [day for day in known if wanted and wanted[0] <= day <= wanted[-1]]
    if wanted and between == wanted:
        first, last = (F.lit(date.fromisoformat(day)) for day in (wanted[0], wanted[-1]))
        return rows.where(days.between(first, last))
    return rows.where(days.isin([date.fromisoformat(day) for day in wanted]))


def _read_files(lake: Lake, table: str, schema: StructType, files: list[DataFile]) -> DataFrame:
    if not files:
        return lake.spark.createDataFrame([], schema)
    paths = [f"{lake.path}/{table}/{one.path}" for one in files]
    return lake.spark.read.schema(schema).parquet(*paths).select(*schema.fieldNames())
