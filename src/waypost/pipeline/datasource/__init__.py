"""The Spark data source `waypost`: read and follow a relay's journal, write to its mailboxes.

`register(spark)` adds the format to a session. Modules here run on executors before anything is
unpacked there, so their top-level imports need only the standard library and PySpark.
"""

from waypost.pipeline.datasource.source import WaypostDataSource, register

__all__ = ["WaypostDataSource", "register"]
