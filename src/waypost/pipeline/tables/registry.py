"""All tables, in build order: later ones read earlier ones."""

from typing import Final

from pyspark.sql.types import StructType

from waypost.pipeline.lake.schemas import with_comments
from waypost.pipeline.tables import (
    anomalies,
    breakers,
    dead_letters,
    inboxes,
    latency,
    loops,
    messages,
    pairs,
    pressure,
    rejections,
    senders,
    sessions,
    threads,
    traffic,
)
from waypost.pipeline.tables.comments import COMMENTS

_MODULES = (
    messages,
    rejections,
    breakers,
    sessions,
    traffic,
    pairs,
    pressure,
    senders,
    inboxes,
    latency,
    dead_letters,
    loops,
    threads,
    anomalies,
)

TABLES: Final[dict[str, StructType]] = {module.NAME: module.SCHEMA for module in _MODULES}
"""The schema of each table, by name."""

TABLES_WITH_COMMENTS: Final[dict[str, StructType]] = {
    name: with_comments(schema, COMMENTS[name]) for name, schema in TABLES.items()
}
"""The same, with comments for other engines."""
