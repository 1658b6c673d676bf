"""The directories of a lake: what a write left there, and removal.

Only Spark's readers and writers reach every lake, also over Spark Connect. Directories on this
machine are read and removed directly, which takes milliseconds instead of a job: the name of a pack
is unique, so a directory of that name is the one that was written.
"""

import contextlib
import re
import shutil
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from waypost.pipeline.files import local_path
from waypost.pipeline.lake.manifest import DataFile
from waypost.pipeline.spark.failures import PATH_ERRORS, is_missing

# Greedy, because directories above the lake may have such names, too.
_WRITE = re.compile(r"^(?:.*/)?([a-z_]{1,64}/([0-9]{1,19})-[0-9a-f]{8,32})(?:/.*)?$")


def written_files(spark: SparkSession, table: str, directory: str) -> list[DataFile]:
    """Return the files with rows that were written to `directory` below the path `table`."""
    local = Path(local_path(table), directory)
    found = _local_files(local) if local.is_dir() else _files(spark, f"{table}/{directory}")
    return [
        DataFile(f"{directory}/{path}", size, rows, str(first), str(last))
        for path, size, rows, first, last in sorted(found)
        if rows
    ]


def _local_files(directory: Path) -> Iterable[tuple[str, int, int, date | None, date | None]]:
    """Yield path, bytes, rows, first and last day of each file, from the ends of the files."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    for path in directory.rglob("[!._]*.parquet"):
        footer = pq.read_metadata(path)
        (day,) = (
            number
            for number in range(footer.num_columns)
            if footer.schema.column(number).path == "day"
        )
        groups = range(footer.num_row_groups)
        ranges = [footer.row_group(group).column(day).statistics for group in groups]
        first = min((one.min for one in ranges), default=None)
        last = max((one.max for one in ranges), default=None)
        name = str(path.relative_to(directory))
        yield name, path.stat().st_size, footer.num_rows, first, last


def _files(
    spark: SparkSession, directory: str
) -> Iterable[tuple[str, int, int, date | None, date | None]]:
    """Do the same with a query; it reads one column."""
    reader = spark.read.schema("day date").option("recursiveFileLookup", "true")
    name, size = F.col("_metadata.file_path").alias("path"), F.col("_metadata.file_size")
    days = F.count(F.lit(1)).alias("rows"), F.min("day").alias("first"), F.max("day").alias("last")
    rows = reader.parquet(directory).groupBy(name, size.alias("bytes")).agg(*days)
    marker = f"/{directory.rpartition('/')[2]}/"
    for row in rows.collect():
        yield row.path.rpartition(marker)[2], row.bytes, row.rows, row.first, row.last


def remove(spark: SparkSession, lake: str, directory: str) -> None:
    """Remove a directory of a lake with all that is in it; a missing one is no error.

    Where only Spark reaches it, the directory itself stays, empty.
    """
    local = Path(local_path(lake))
    if local.is_dir():
        shutil.rmtree(local / directory, ignore_errors=True)
        with contextlib.suppress(OSError):  # the directory of all packs of that write, if empty
            if local.joinpath(directory).name.startswith("pack="):
                local.joinpath(directory).parent.rmdir()
        return
    nothing = spark.range(0).withColumn("day", F.lit(0))  # without rows, no file for any day
    writer = nothing.write.mode("overwrite").option("partitionOverwriteMode", "static")
    writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    writer.partitionBy("day").parquet(f"{lake}/{directory}")


def find_writes(
    spark: SparkSession, lake: str, tables: Iterable[str], before_s: float
) -> dict[str, int]:
    """Return the directories that writes made for `tables`, unchanged since `before_s`.

    Returns the version that each was written for. `before_s` is Unix time.
    """
    root = Path(local_path(lake))
    if root.is_dir():
        found = [path for table in tables for path in (root / table).glob("*-*")]
        paths = [str(path) for path in found if _last_change_s(path) < before_s]
    else:
        paths = _finished_before(spark, [f"{lake}/{table}" for table in tables], before_s)
    matches = (_WRITE.match(path) for path in paths)
    return {match[1]: int(match[2]) for match in matches if match}


def _last_change_s(directory: Path) -> float:
    changed = 0.0
    for path in (directory, *directory.rglob("*")):
        with contextlib.suppress(OSError):  # renamed or removed meanwhile
            changed = max(changed, path.stat().st_mtime)
    return changed


def _finished_before(spark: SparkSession, tables: list[str], before_s: float) -> list[str]:
    """Return the files that were finished before that time: Spark shows no others."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        files = reader.option("pathGlobFilter", "*.parquet").load(tables)
        by_write = files.groupBy(F.regexp_extract("path", _WRITE.pattern, 1).alias("path"))
        last = by_write.agg(F.max("modificationTime").alias("changed"))
        old = last.where(F.col("changed") < F.timestamp_seconds(F.lit(before_s)))
        return [row.path for row in old.collect()]
    except PATH_ERRORS as problem:
        if is_missing(problem):
            return []
        raise
