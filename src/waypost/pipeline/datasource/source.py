"""The data source `waypost` and its options; `reader` and `writer` do the work.

spark.read.format("waypost").load("DATA_DIR")            the journal up to now
spark.readStream.format("waypost").load("DATA_DIR")      the journal as it grows
df.write.format("waypost").mode("append").option("url", "http://…").save()
"""

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
from waypost.pipeline.files import local_path
from waypost.pipeline.journal.sources import default_relay_name, journal_path
from waypost.pipeline.spark.executors import import_shipped

FORMAT = "waypost"


class WaypostDataSource(DataSource):
    """A relay as a data source: read its journal, write to its mailboxes."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of `events`; with `payload=true` also the payload, as JSON text."""
        import_shipped()
        from waypost.pipeline.journal.columns import schema_of

        return schema_of(payload=_is_true(self._option("payload", "false")))

    def reader(self, schema: StructType) -> JournalReader:
        """Return a reader of the journal up to now."""
        return JournalReader(self._read_options())

    def streamReader(self, schema: StructType) -> JournalStreamReader:  # noqa: N802
        """Return a reader that follows the journal."""
        return JournalStreamReader(self._read_options())

    def writer(self, schema: StructType, overwrite: bool) -> RelayWriter:
        """Return a writer that publishes rows."""
        return RelayWriter(self._write_options(schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RelayStreamWriter:  # noqa: N802
        """Return a writer that publishes the rows of a stream."""
        return RelayStreamWriter(self._write_options(schema, overwrite=overwrite))

    def _read_options(self) -> ReadOptions:
        path = self._option("path", "")
        if not path:
            raise JournalUnusable("no journal given: name the data directory, .load(DATA_DIR)")
        default_name = default_relay_name(journal_path(local_path(path)))
        begin = self._one_of("from", "start", "now")
        segment = self._option("start_segment", "")
        return ReadOptions(
            path=path,
            relay=self._option("relay", default_name),
            payload=_is_true(self._option("payload", "false")),
            skip_damaged=self._one_of("damaged", "fail", "skip") == "skip",
            start_segment=int(segment) if segment else None,
            from_now=begin == "now",
        )

    def _write_options(self, schema: StructType, *, overwrite: bool) -> WriteOptions:
        if overwrite:
            raise ValueError("a relay cannot overwrite messages: use mode append")
        # `refused` is the option's name in releases before `rejected`.
        name = "rejected" if self.options.get("refused") is None else "refused"
        skip = self._one_of(name, "fail", "skip") == "skip"
        return write_options(dict(self.options), schema, skip_rejected=skip)

    def _option(self, name: str, default: str) -> str:
        value: Any = self.options.get(name)
        return default if value is None else str(value)

    def _one_of(self, name: str, default: str, other: str) -> str:
        value = self._option(name, default)
        if value not in (default, other):
            raise ValueError(f"option {name} must be {default!r} or {other!r}, not {value!r}")
        return value


def register(spark: SparkSession) -> None:
    """Add the format `waypost` to a session."""
    spark.dataSource.register(WaypostDataSource)


def _is_true(value: str) -> bool:
    return value.lower() == "true"
