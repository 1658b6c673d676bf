"""The data source `waypost` and its options. What it does is in `reading` and `writing`.

spark.read.format("waypost").load("DATA_DIR")            the journal, as it is
spark.readStream.format("waypost").load("DATA_DIR")      the journal, as it grows
df.write.format("waypost").mode("append").option("url", "http://…").save()
"""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from waypost.pipeline.datasource.reader import JournalReader, JournalStreamReader, ReadOptions
from waypost.pipeline.datasource.writer import (
    RelayStreamWriter,
    RelayWriter,
    WriteOptions,
    write_options,
)
from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.spark.executors import unpacked

FORMAT = "waypost"


class WaypostDataSource(DataSource):
    """A relay: its journal to read, its mailboxes to write to."""

    @classmethod
    def name(cls) -> str:
        """What `format(…)` calls it."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of `events`; with `payload=true` also the payload, as JSON text."""
        unpacked()
        from waypost.pipeline.journal.columns import schema_of

        return schema_of(payload=_is_true(self._option("payload", "false")))

    def reader(self, schema: StructType) -> JournalReader:
        """The journal as it is."""
        return JournalReader(self._reading())

    def streamReader(self, schema: StructType) -> JournalStreamReader:  # noqa: N802
        """The journal as it grows."""
        return JournalStreamReader(self._reading())

    def writer(self, schema: StructType, overwrite: bool) -> RelayWriter:
        """The relay as a sink."""
        return RelayWriter(self._writing(schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RelayStreamWriter:  # noqa: N802
        """The relay as the sink of a stream."""
        return RelayStreamWriter(self._writing(schema, overwrite=overwrite))

    def _reading(self) -> ReadOptions:
        path = self._option("path", "")
        if not path:
            raise JournalUnusable("which journal? give the data directory: .load(DATA_DIR)")
        at = Path(path)
        data = at.parent if at.name == "journal" else at
        begin = self._one_of("from", "start", "now")
        segment = self._option("start_segment", "")
        return ReadOptions(
            path=path,
            relay=self._option("relay", data.name or "relay"),
            payload=_is_true(self._option("payload", "false")),
            skip_damaged=self._one_of("damaged", "fail", "skip") == "skip",
            start_segment=int(segment) if segment else None,
            from_now=begin == "now",
        )

    def _writing(self, schema: StructType, *, overwrite: bool) -> WriteOptions:
        if overwrite:
            raise ValueError("a relay takes messages and keeps them: use mode append")
        skip = self._one_of("refused", "fail", "skip") == "skip"
        return write_options(dict(self.options), schema, skip_rejected=skip)

    def _option(self, name: str, default: str) -> str:
        value: Any = self.options.get(name)
        return default if value is None else str(value)

    def _one_of(self, name: str, default: str, other: str) -> str:
        value = self._option(name, default)
        if value not in (default, other):
            raise ValueError(f"option {name} is {default!r} or {other!r}, not {value!r}")
        return value


def register(spark: SparkSession) -> None:
    """Make the format `waypost` known to `spark`."""
    spark.dataSource.register(WaypostDataSource)


def _is_true(value: str) -> bool:
    return value.lower() == "true"
