"""A lake: Parquet directories, and a manifest that lists the current ones.

    <lake>/manifest/slot=0|1/         the two newest manifests, each one text file
    <lake>/events/day=D/batch=N/      written once, by the job that made version N
    <lake>/<table>/day=D/slot=0|1/    rewritten as a whole, always in the unused slot

Rule 1  A directory that the current manifest lists is never written to.
Rule 2  The manifest is written last. A job that dies earlier leaves directories that no manifest
        lists; the next job overwrites them.
Rule 3  Readers go through a manifest. A read that lasts longer than two further versions fails;
        it never mixes versions.
Rule 4  A day of `events` stays in few parts: a commit that would exceed the limit rewrites the
        day as one part.
Rule 5  Compacted parts are deleted once neither the current version nor the one before lists
        them, and only where the lake is on a file system of this machine.

Only Spark's readers and writers are used, so a lake can be wherever Spark can write.
"""

import contextlib
import shutil
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructField, StructType

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.files import local_path
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.manifest import FORMAT, Manifest, decode_manifest, encode_manifest
from waypost.pipeline.spark.failures import PATH_ERRORS, cause, is_missing

EVENTS_TABLE = "events"
PARTS_MAX = 50
"""Parts of a day of `events`; with more, the day is compacted."""

_EPOCH = date(1970, 1, 1)

# Values of these columns hardly repeat, so dictionary encoding only costs time.
_UNIQUE = (
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
_PARQUET = {
    "parquet.compression.codec.zstd.level": "1",
    **{f"parquet.enable.dictionary#{name}": "false" for name in _UNIQUE},
}


class Lake:
    """A lake at the version that was opened or last committed."""

    def __init__(self, spark: SparkSession, path: str, manifest: Manifest) -> None:
        self.spark = spark
        self.path = path
        self.manifest = manifest

    def read(self, table: str, schema: StructType, days: Iterable[str] | None = None) -> DataFrame:
        """Return a table, or some days of it; an empty one has its columns, too."""
        return _read(self.spark, self.path, self.manifest, table, schema, days)

    def begin(self) -> "Change":
        """Begin the next version."""
        return Change(self)


class Change:
    """The next version of a lake: readable only through this object until `commit`."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.draft = decode_manifest(encode_manifest(lake.manifest))
        self.draft.version += 1

    def read(self, table: str, schema: StructType, days: Iterable[str] | None = None) -> DataFrame:
        """Return a table as of this version."""
        return _read(self.lake.spark, self.lake.path, self.draft, table, schema, days)

    def read_batch(self, batch: int, days: Iterable[str]) -> DataFrame:
        """Return the events of one batch on `days`."""
        parts = self.draft.tables.get(EVENTS_TABLE, {})
        part = f"batch={batch}"
        of_batch = {day: [part] for day in days if part in parts.get(day, [])}
        only = Manifest(tables={EVENTS_TABLE: of_batch})
        return _read(self.lake.spark, self.lake.path, only, EVENTS_TABLE, EVENTS, None)

    def append_events(self, events: DataFrame) -> list[str]:
        """Add a batch to `events`; returns the days of its rows.

        Events are sorted by kind within a file, so that queries for some kinds skip the others.
        """
        batch = self.draft.version
        rows = events.withColumn("batch", F.lit(batch))
        written, _ = self._write(rows, EVENTS_TABLE, "batch", order="kind")
        self.add_events(written)
        return written

    @property
    def events_part(self) -> str:
        """Return the directory, below that of a day, for the events that this change adds."""
        return f"batch={self.draft.version}"

    def add_events(self, days: list[str]) -> None:
        """List the part that was written as `events_part` for `days`."""
        parts = self.draft.tables.setdefault(EVENTS_TABLE, {})
        for day in days:
            parts.setdefault(day, []).append(self.events_part)
        if days:
            self.draft.unbuilt.append(self.draft.version)

    def rewrite(self, table: str, rows: DataFrame, days: Iterable[str] | None = None) -> int:
        """Replace `days` of a table by `rows`, which are all of those days; None is every day.

        Returns the number of rows written. Several tables can be rewritten at the same time.
        """
        known = self.lake.manifest.tables.get(table, {})
        in_use = {day: parts[0] for day, parts in known.items()}
        in_second = [date.fromisoformat(day) for day, part in in_use.items() if part == "slot=1"]
        slot = F.when(F.col("day").isin(in_second), 0).otherwise(1)
        slotted = rows.withColumn("slot", slot if in_second else F.lit(1))
        written, count = self._write(slotted, table, "slot")
        parts = self.draft.tables.setdefault(table, {})
        for day in list(parts) if days is None else days:
            parts.pop(day, None)
        for day in written:
            parts[day] = ["slot=0" if in_use.get(day) == "slot=1" else "slot=1"]
        return count

    def commit(self) -> None:
        """Make this the current version. Raises `LakeUnusable` if another job committed first."""
        lake = self.lake
        current = _newest(lake.spark, lake.path)
        if (current.version if current else 0) != lake.manifest.version:
            raise LakeUnusable(
                f"another job committed to {lake.path} first: nothing was changed, run this job"
                " again"
            )
        _write_manifest(lake.spark, lake.path, self.draft)
        lake.manifest = self.draft

    def _write(
        self, rows: DataFrame, table: str, part: str, order: str = ""
    ) -> tuple[list[str], int]:
        """Write rows below day and part, sorted by `order`; returns their days and number."""
        observation = Observation()
        # Days as integers: formatting a text for every row would cost more.
        numbers = F.collect_set(F.unix_date("day")).alias("days")
        observed = rows.observe(observation, numbers, F.count(F.lit(1)).alias("rows"))
        if order:
            observed = observed.sortWithinPartitions("day", part, order)
        (
            observed.write.partitionBy("day", part)
            .mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .options(**_PARQUET)
            .parquet(f"{self.lake.path}/{table}")
        )
        seen = observation.get
        days = [str(_EPOCH + timedelta(days=number)) for number in seen["days"] or []]
        return sorted(days), seen["rows"] or 0


def open_lake(spark: SparkSession, path: str, *, create: bool = False) -> Lake:
    """Open the lake at `path`; with `create`, a missing one is empty. Raises `LakeUnusable`."""
    path = path.rstrip("/")
    manifest = _newest(spark, path)
    if manifest is None and not create:
        raise LakeUnusable(
            f"no lake at {path}: create one with `waypost pipeline ingest --journal DIR --lake"
            f" {path}`"
        )
    return Lake(spark, path, manifest or Manifest())


def compact(change: Change, rows: DataFrame, parts_max: int) -> DataFrame:
    """Return `rows` together with the days that have too many parts, and unlist those parts.

    The result replaces both when it is appended to `change`.
    """
    parts = change.draft.tables.get(EVENTS_TABLE, {})
    days = [day for day, of_day in parts.items() if len(of_day) > parts_max]
    if not days:
        return rows
    old = change.read(EVENTS_TABLE, EVENTS, days)
    for day in days:
        parts[day] = []
    both = rows.unionByName(old).repartition("day")
    return both.sortWithinPartitions("day", "relay", "seq")


def delete_compacted(lake: Lake, before: Manifest, parts_max: int) -> None:
    """Delete the parts of compacted days that neither `before` nor the lake's version lists."""
    was = before.tables.get(EVENTS_TABLE, {})
    now = lake.manifest.tables.get(EVENTS_TABLE, {})
    days = [day for day, parts in was.items() if len(parts) > parts_max and len(now[day]) == 1]
    for day in days:
        listed = {*was[day], *now[day]}
        for part in Path(local_path(lake.path), EVENTS_TABLE, f"day={day}").glob("batch=*"):
            number = part.name.removeprefix("batch=")
            if part.name not in listed and number.isdigit() and int(number) <= before.version:
                with contextlib.suppress(OSError):
                    shutil.rmtree(part)


def _newest(spark: SparkSession, path: str) -> Manifest | None:
    try:
        texts = [
            row.value
            for row in spark.read.text(f"{path}/manifest/slot=*/part-*", wholetext=True).collect()
        ]
    except PATH_ERRORS as problem:
        if is_missing(problem):
            return None
        raise LakeUnusable(f"cannot read the lake at {path}: {cause(problem)}") from None
    versions = [_decode(text, path) for text in texts]
    return max(versions, key=lambda manifest: manifest.version, default=None)


def _decode(text: str, path: str) -> Manifest:
    try:
        manifest = decode_manifest(text.encode())
    except (msgspec.DecodeError, RecursionError) as problem:
        raise LakeUnusable(f"invalid manifest in {path}: {problem}") from None
    if manifest.format != FORMAT:
        raise LakeUnusable(
            f"{path} has lake format {manifest.format}, and this version of Waypost reads format"
            f" {FORMAT}: use the version that wrote it"
        )
    return manifest


def _write_manifest(spark: SparkSession, path: str, manifest: Manifest) -> None:
    text = encode_manifest(manifest).decode()
    (
        spark.range(0, 1, 1, 1)
        .select(F.lit(text).alias("value"))
        .write.mode("overwrite")
        .text(f"{path}/manifest/slot={manifest.version % 2}")
    )


def _read(
    spark: SparkSession,
    path: str,
    manifest: Manifest,
    table: str,
    schema: StructType,
    days: Iterable[str] | None,
) -> DataFrame:
    known = manifest.tables.get(table, {})
    wanted = sorted(known) if days is None else [day for day in sorted(set(days)) if day in known]
    directories = [f"{path}/{table}/day={day}/{part}" for day in wanted for part in known[day]]
    if not directories:
        return spark.createDataFrame([], schema)
    stored = StructType([field for field in schema if field.name != "day"])
    stored = stored.add(StructField("day", DateType()))
    rows = spark.read.schema(stored).option("basePath", f"{path}/{table}").parquet(*directories)
    return rows.select(*schema.fieldNames())
