"""`<data>/journal/remembered.db`: last-seen pairs and duplicate ids of deleted journal segments.

The index has them, too. But the index may be deleted or damaged, and is rebuilt from the journal:
what only deleted segments held would be forgotten.

Failures and answers:
  crash while writing      the old file or the new one; segments are deleted only after the new one
  missing or damaged       the index still has its content, and the file is written again; if the
                           index is lost as well, the loss is reported
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from waypost.relay.data_dir import DataDir, sync_directory, sync_file

FORMAT = 1
_ROWS_AT_ONCE = 10_000
_TABLES = """
create table kept.last_seen (sender text, recipient text, at_ms integer);
create table kept.duplicates (id text, at_us integer, result text);
"""
_COLUMNS = {"last_seen": (str, str, int), "duplicates": (str, int, str)}

Row = tuple[str | int, ...]


class RememberedUnusable(Exception):
    """The file is missing, damaged or of another format."""


def remembered_path(data: DataDir) -> Path:
    """Return the path of the file."""
    return data.journal / "remembered.db"


def write_remembered(data: DataDir) -> None:
    """Write all last-seen pairs and duplicate ids of the index.

    Raises `OSError` or `sqlite3.Error`; the old file is then unchanged.
    """
    path = remembered_path(data)
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _copy(data.index, unfinished)
        sync_file(descriptor)
    except (OSError, sqlite3.Error):
        unfinished.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    os.replace(unfinished, path)
    sync_directory(path.parent)


def read_remembered(data: DataDir) -> Iterator[tuple[str, list[Row]]]:
    """Yield the names of tables, each with some of its rows. Raises `RememberedUnusable`."""
    path = remembered_path(data)
    if not path.exists():
        raise RememberedUnusable("it is missing")
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        if connection.execute("pragma user_version").fetchone()[0] != FORMAT:
            raise RememberedUnusable("it has another format")
        if connection.execute("pragma quick_check(1)").fetchone()[0] != "ok":
            raise RememberedUnusable("it is damaged")
        for table, types in _COLUMNS.items():
            rows = connection.execute(f"select * from {table}")
            while some := rows.fetchmany(_ROWS_AT_ONCE):
                if any(tuple(map(type, row)) != types for row in some):
                    raise RememberedUnusable("it is damaged")
                yield table, some
    except (sqlite3.Error, UnicodeDecodeError) as problem:
        raise RememberedUnusable(f"it could not be read ({problem})") from None
    finally:
        connection.close()


def remembered_problem(data: DataDir) -> str:
    """Return why the file cannot be used, or ""."""
    try:
        for _ in read_remembered(data):
            pass
    except RememberedUnusable as problem:
        return str(problem)
    return ""


def _copy(index: Path, target: Path) -> None:
    if not index.exists():  # SQLite would create an empty one
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(index))
    connection = sqlite3.connect(index, isolation_level=None)
    try:
        run = connection.execute
        run("pragma busy_timeout = 5000")
        run("attach database ? as kept", (str(target),))
        run("pragma kept.journal_mode = off")  # the file is discarded unless it is complete
        run("pragma kept.synchronous = off")
        connection.executescript(_TABLES)
        run("begin")
        run("insert into kept.last_seen select sender, recipient, at_ms from main.last_seen")
        run("insert into kept.duplicates select id, at_us, result from main.duplicates")
        run("commit")
        run(f"pragma kept.user_version = {FORMAT}")
    finally:
        connection.close()
