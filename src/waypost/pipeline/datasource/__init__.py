"""A relay as a Spark data source, `waypost`: its journal to read and follow, its mailboxes to
write to. `register(spark)` makes the name known to a session.

What is imported here at the top runs on executors before anything was unpacked there, so it needs
the standard library and PySpark only.
"""

from waypost.pipeline.datasource.source import WaypostDataSource, register

__all__ = ["WaypostDataSource", "register"]
