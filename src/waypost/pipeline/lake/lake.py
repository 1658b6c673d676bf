"""A lake: Parquet directories, and a manifest that says which of them count.

    <lake>/manifest/slot=0|1/         the two newest manifests, each one text file
    <lake>/events/day=D/batch=N/      written once, by the job that made version N
    <lake>/<table>/day=D/slot=0|1/    rewritten as a whole, always in the slot not in use

Rule 1  Nothing that the current manifest names is ever written to.
Rule 2  The manifest is written last. A job that dies before leaves what nobody reads, and the
        next one writes over it.
Rule 3  Whoever reads goes through a manifest. One that reads for longer than the lake takes for
        two further versions gets an error, never a mixture.

What is done here is done with Spark's readers and writers, so a lake may lie wherever Spark can
write.
"""

from collections.abc import Iterable
from datetime import date, timedelta

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructField, StructType

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.manifest import FORMAT, Manifest, decode_manifest, encode_manifest

EVENTS_TABLE = "events"
_EPOCH = date(1970, 1, 1)

# Values of these columns hardly repeat: to look each up in a dictionary would be work for nothing.
_UNIQUE = (
    *("seq", "id", "parent", "at_us", "arrived_at", "first_leased_at", "finished_at", "died_at"),
    *("wait_ms", "total_ms"),
)
_PARQUET = {
    "parquet.compression.codec.zstd.level": "1",
    **{f"parquet.enable.dictionary#{name}": "false" for name in _UNIQUE},
}


class Lake:
    """A lake as it was when opened or last committed to."""

    def __init__(self, spark: SparkSession, path: str, manifest: Manifest) -> None:
        self.spark = spark
        self.path = path
        self.manifest = manifest

    def read(self, table: str, schema: StructType, days: Iterable[str] | None = None) -> DataFrame:
        """A table, or some days of it. With no rows, it still has its columns."""
        return _read(self.spark, self.path, self.manifest, table, schema, days)

    def begin(self) -> "Change":
        """Start the next version."""
        return Change(self)


class Change:
    """The next version of a lake, in the making: readable here, and nowhere else until `commit`."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.draft = decode_manifest(encode_manifest(lake.manifest))
        self.draft.version += 1

    def read(self, table: str, schema: StructType, days: Iterable[str] | None = None) -> DataFrame:
        """A table as it will be."""
        return _read(self.lake.spark, self.lake.path, self.draft, table, schema, days)

    def read_batch(self, batch: int, days: Iterable[str]) -> DataFrame:
        """The events that one batch brought, of `days`."""
        parts = self.draft.tables.get(EVENTS_TABLE, {})
        of_batch = {
            day: [part for part in parts.get(day, []) if part == f"batch={batch}"] for day in days
        }
        only = Manifest(tables={EVENTS_TABLE: {day: own for day, own in of_batch.items() if own}})
        return _read(self.lake.spark, self.lake.path, only, EVENTS_TABLE, EVENTS, None)

    def append_events(self, events: DataFrame) -> list[str]:
        """Add a batch to `events`; returns the days it has rows of.

        Within a file events lie by kind, so that whoever wants some kinds can skip the others.
        """
        batch = self.draft.version
        rows = events.withColumn("batch", F.lit(batch))
        written = self._write(rows, EVENTS_TABLE, "batch", order="kind")
        self.add_events(written)
        return written

    @property
    def events_part(self) -> str:
        """The directory, below that of a day, for what this change adds to `events`."""
        return f"batch={self.draft.version}"

    def add_events(self, days: list[str]) -> None:
        """Let what was written as `events_part` of `days` count."""
        parts = self.draft.tables.setdefault(EVENTS_TABLE, {})
        for day in days:
            parts.setdefault(day, []).append(self.events_part)
        if days:
            self.draft.unbuilt.append(self.draft.version)

    def rewrite(self, table: str, rows: DataFrame, days: Iterable[str] | None = None) -> int:
        """Replace `days` of a table by `rows`, which hold only those days; None is every day.

        Returns how many rows were written. Several tables may be rewritten at the same time.
        """
        known = self.lake.manifest.tables.get(table, {})
        taken = {day: parts[0] for day, parts in known.items()}
        in_second = [date.fromisoformat(day) for day, part in taken.items() if part == "slot=1"]
        slot = F.when(F.col("day").isin(in_second), 0).otherwise(1)
        slotted = rows.withColumn("slot", slot if in_second else F.lit(1))
        written, count = self._written(slotted, table, "slot")
        parts = self.draft.tables.setdefault(table, {})
        for day in list(parts) if days is None else days:
            parts.pop(day, None)
        for day in written:
            parts[day] = ["slot=0" if taken.get(day) == "slot=1" else "slot=1"]
        return count

    def commit(self) -> None:
        """Make this the current version. Raises `LakeUnusable` if somebody else was quicker."""
        lake = self.lake
        now = _newest(lake.spark, lake.path)
        if (now.version if now else 0) != lake.manifest.version:
            raise LakeUnusable(
                f"another job changed {lake.path} meanwhile; nothing was lost, run this again"
            )
        _write_manifest(lake.spark, lake.path, self.draft)
        lake.manifest = self.draft

    def _write(self, rows: DataFrame, table: str, part: str, order: str = "") -> list[str]:
        """Write rows below day and part, files by `order`; returns the days there were any of."""
        return self._written(rows, table, part, order)[0]

    def _written(
        self, rows: DataFrame, table: str, part: str, order: str = ""
    ) -> tuple[list[str], int]:
        """The same, and how many rows there were."""
        observation = Observation()
        # Days as numbers: each row is looked at, and a text would be made of each.
        numbers = F.collect_set(F.unix_date("day")).alias("days")
        watched = rows.observe(observation, numbers, F.count(F.lit(1)).alias("rows"))
        if order:
            watched = watched.sortWithinPartitions("day", part, order)
        (
            watched.write.partitionBy("day", part)
            .mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .options(**_PARQUET)
            .parquet(f"{self.lake.path}/{table}")
        )
        seen = observation.get
        days = [str(_EPOCH + timedelta(days=number)) for number in seen["days"] or []]
        return sorted(days), seen["rows"] or 0


def open_lake(spark: SparkSession, path: str, *, create: bool = False) -> Lake:
    """The lake at `path`; with `create`, one that is not there yet is empty, not an error."""
    path = path.rstrip("/")
    manifest = _newest(spark, path)
    if manifest is None and not create:
        raise LakeUnusable(
            f"there is no lake at {path}; `waypost pipeline ingest --journal DIR --lake {path}`"
            " makes one"
        )
    return Lake(spark, path, manifest or Manifest())


def _newest(spark: SparkSession, path: str) -> Manifest | None:
    try:
        texts = [
            row.value
            for row in spark.read.text(f"{path}/manifest/slot=*/part-*", wholetext=True).collect()
        ]
    except AnalysisException as problem:
        if problem.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    versions = [_decoded(text, path) for text in texts]
    return max(versions, key=lambda manifest: manifest.version, default=None)


def _decoded(text: str, path: str) -> Manifest:
    try:
        manifest = decode_manifest(text.encode())
    except msgspec.DecodeError as problem:
        raise LakeUnusable(f"the manifest of {path} cannot be read: {problem}") from problem
    if manifest.format != FORMAT:
        raise LakeUnusable(
            f"{path} was written in format {manifest.format}, and this version of Waypost knows"
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
    places = [f"{path}/{table}/day={day}/{part}" for day in wanted for part in known[day]]
    if not places:
        return spark.createDataFrame([], schema)
    stored = StructType([field for field in schema if field.name != "day"])
    stored = stored.add(StructField("day", DateType()))
    rows = spark.read.schema(stored).option("basePath", f"{path}/{table}").parquet(*places)
    return rows.select(*schema.fieldNames())
