"""A lake of one table in plain Parquet, written without Spark: a version takes milliseconds.

Run as `python -m tests.pipeline.delta.small_lake LAKE`, it commits versions until it is killed,
each with its Delta log.
"""

import os
import sys
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from waypost.pipeline.files import replace_file
from waypost.pipeline.lake.delta import update_logs
from waypost.pipeline.lake.manifest import (
    DataFile,
    Manifest,
    decode_manifest,
    encode_manifest,
)
from waypost.pipeline.lake.schemas import columns

TABLE = "t"
SCHEMA = columns("day date, relay string, n bigint")
DAY = date(2026, 1, 1)
FILES = 4
"""Files that each version of `commit_versions` has."""


class SmallLake:
    """A lake whose manifest is one file. Its versions stay readable: nothing is deleted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._path = root / "manifest.json"
        known = self._path.exists()
        self.manifest = decode_manifest(self._path.read_bytes()) if known else Manifest()

    def write(self, rows: pa.Table, table: str = TABLE) -> DataFile:
        """Write a file that no version lists yet."""
        pack = f"{self.manifest.version + 1}-{os.urandom(8).hex()}"
        path = self.root / table / pack / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(rows, path)
        name = str(path.relative_to(self.root / table))
        return DataFile(name, path.stat().st_size, rows.num_rows, str(DAY), str(DAY))

    def commit(self, *files: DataFile, table: str = TABLE) -> None:
        """Make `files` the whole table, in the next version."""
        self.manifest.tables[table] = [*files]
        self.manifest.version += 1
        replace_file(self._path, encode_manifest(self.manifest))

    def update_log(self, schema: StructType = SCHEMA, table: str = TABLE) -> list[str]:
        return update_logs(str(self.root), self.manifest, {table: schema})


def numbers(*values: int) -> pa.Table:
    return pa.table(
        {
            "day": pa.array([DAY] * len(values), pa.date32()),
            "relay": ["r"] * len(values),
            "n": pa.array(values, pa.int64()),
        }
    )


def commit_versions(root: Path) -> None:
    """Commit version after version, each of new files: `FILES * version` rows of its number."""
    lake = SmallLake(root)
    lake.update_log()  # what a job that died has left out
    while True:
        version = lake.manifest.version + 1
        lake.commit(*(lake.write(numbers(*[version] * version)) for _ in range(FILES)))
        lake.update_log()


if __name__ == "__main__":
    commit_versions(Path(sys.argv[1]))
