"""What a sample of a running stream sees: lag, memory and files. Reads files only, without Spark.

The lag of a table is the age of its newest event: the relay writes some all the time. That of
`messages`, which is built with all others, counts as that of the tables.
"""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from bench.pipeline.processes import family

_MB = 1_000_000


class LakeWatch:
    """Reads the manifest of a lake, and the newest event of its tables from their files' ends."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._newest: dict[str, int] = {}

    def sample(self) -> dict[str, float] | None:
        """Return lags in seconds, and numbers of files; None before the first version."""
        manifest = self._manifest()
        tables = manifest.get("tables", {})
        if not tables.get("events") or not tables.get("messages"):
            return None
        try:
            newest = {
                "events": self._newest_us("events", "at_us", tables["events"]),
                "tables": self._newest_us("messages", "arrived_at", tables["messages"]),
            }
        except OSError:  # replaced, and removed meanwhile
            return None
        now_us = time.time_ns() / 1000
        on_disk = sum(len(files) for _, _, files in os.walk(self._lake))
        return {
            **{f"{name}_lag_s": (now_us - at_us) / 1e6 for name, at_us in newest.items()},
            "listed_files": sum(len(files) for files in tables.values()),
            "events_files": len(tables["events"]),
            "files_on_disk": on_disk,
            "version": manifest["version"],
            "events": sum(
                segment[2] for relay in manifest["relays"].values() for segment in relay.values()
            ),
        }

    def _manifest(self) -> dict[str, Any]:
        found: list[dict[str, Any]] = [{"version": 0}]
        for path in self._lake.glob("manifest/slot=*/part-*"):
            try:
                found.append(json.loads(path.read_bytes()))
            except (OSError, ValueError):
                continue  # being replaced
        return max(found, key=lambda one: one["version"])

    def _newest_us(self, table: str, column: str, files: list[dict[str, Any]]) -> int:
        paths = {f"{table}/{one['path']}" for one in files}
        for path in paths - self._newest.keys():
            self._newest[path] = _newest_in_file_us(self._lake / path, column)
        self._newest = {
            path: at_us
            for path, at_us in self._newest.items()
            if path in paths or not path.startswith(f"{table}/")
        }
        return max(self._newest[path] for path in paths)


def _newest_in_file_us(path: Path, column: str) -> int:
    footer = pq.read_metadata(path)
    number = footer.schema.names.index(column)
    groups = range(footer.num_row_groups)
    newest = max(footer.row_group(group).column(number).statistics.max for group in groups)
    if isinstance(newest, datetime):
        return round(newest.replace(tzinfo=UTC).timestamp() * 1e6)
    return int(newest)


def memory_mb(root: int) -> dict[str, float]:
    """Return the resident memory of a process and its descendants: Java's, and all others'."""
    found = {"java_mb": 0.0, "python_mb": 0.0}
    for pid in family(root):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue  # it has ended
        fields = dict(line.split(":", 1) for line in status.splitlines())
        kind = "java_mb" if fields["Name"].strip() == "java" else "python_mb"
        found[kind] += int(fields.get("VmRSS", "0 kB").split()[0]) * 1024 / _MB
    return found
