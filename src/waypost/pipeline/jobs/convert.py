"""`convert`: brings a lake with a directory for each day to the present layout, in one commit.

Only `events` are converted: everything else is derived from them, and the next build derives it.
The old directories stay for readers as long as replaced files do, and are then removed.
"""

from typing import Annotated

import msgspec
from pyspark.sql import DataFrame

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, OLDER_FORMAT, Lake, open_lake
from waypost.pipeline.lake.manifest import Count, Day, IngestedSegment, Manifest, TableName
from waypost.pipeline.lake.manifest_files import decode_head, newest_manifest
from waypost.pipeline.spark.session import Session

Part = Annotated[str, msgspec.Meta(pattern=r"^(slot=[01]|batch=[0-9]{1,19})\Z")]


class OlderManifest(msgspec.Struct, kw_only=True):
    """A version of a lake of format 1. `tables`: name → day → directories of that day."""

    format: int = OLDER_FORMAT
    version: Count = 0
    relays: dict[str, dict[Count, IngestedSegment]] = {}
    tables: dict[TableName, dict[Day, list[Part]]] = {}


class ConversionSummary(msgspec.Struct, kw_only=True):
    """The result: the converted events and their days; none if there was nothing to do."""

    events: int = 0
    days: list[str] = []


def convert(spark: Session, path: str) -> ConversionSummary:
    """Convert the lake at `path` unless it has the present layout. Raises `LakeUnusable`.

    The tables are empty until the next build.
    """
    path = path.rstrip("/")
    older = _older_manifest(spark, path)
    if older is None:
        open_lake(spark, path)
        return ConversionSummary()
    lake = Lake(spark, path, Manifest(version=older.version, relays=older.relays))
    change = lake.begin()
    batch = change.append_events(_events(lake, older))
    change.retire(
        f"{table}/day={day}" for table, days in sorted(older.tables.items()) for day in sorted(days)
    )
    change.commit()
    return ConversionSummary(events=change.draft.events, days=batch.days)


def _older_manifest(spark: Session, path: str) -> OlderManifest | None:
    text = newest_manifest(spark, path)
    if text is None or decode_head(text).format != OLDER_FORMAT:
        return None
    try:
        return msgspec.json.decode(text, type=OlderManifest)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise LakeUnusable(f"invalid manifest in {path}: {problem}") from None


def _events(lake: Lake, older: OlderManifest) -> DataFrame:
    root = f"{lake.path}/{EVENTS_TABLE}"
    days = older.tables.get(EVENTS_TABLE, {})
    directories = [f"{root}/day={day}/{part}" for day in sorted(days) for part in days[day]]
    if not directories:
        return lake.spark.createDataFrame([], EVENTS)
    rows = lake.spark.read.schema(EVENTS).option("basePath", root).parquet(*directories)
    return rows.select(*EVENTS.fieldNames())
