"""The lake's tables as Delta tables: a `_delta_log` beside the files of each table.

Rule 1  The manifest is the truth, the log a view of it: an update brings the log to exactly the
        manifest's files, adds and removes in one commit. With nothing to change, it commits
        nothing, so every job can repeat what a dead one left out.
Rule 2  A log never goes back: each commit carries the lake's version, and a job that is late
        leaves a later version as it is.
Rule 3  Only logs are written. Data files are deleted by the lake's retention alone.
Rule 4  A log that cannot be written costs a note, never the result of the job.

Needs `deltalake`; without it, there are no logs.
"""

import importlib.util
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql.types import StructType

from waypost.pipeline.files import local_path, private_files
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.file_statistics import read_statistics
from waypost.pipeline.lake.lake import EVENTS_TABLE
from waypost.pipeline.lake.manifest import DataFile, Manifest
from waypost.pipeline.lake.schemas import with_comments

if TYPE_CHECKING:
    import pyarrow.fs as pafs  # type: ignore[import-untyped]
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties

APP_ID = "waypost"
"""Name under which commits record the lake's version; a log without it is not of a lake."""

LAKE_VERSION = "waypostLakeVersion"
"""Key of the lake's version in a commit's metadata."""

EVENTS_WITH_COMMENTS = {
    EVENTS_TABLE: with_comments(
        EVENTS,
        {
            "segment": "seq of the first event in the segment of the journal",
            "seq": "sequence number in the relay's journal",
            "at_us": "time in µs since the epoch",
            "kind": "the kind of event; the other columns are its fields in the journal",
        },
    )
}
"""The table `events` as `update_logs` takes it."""

_ATTEMPTS = 3
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|↳")
_CREDENTIALS_ADVICE = (
    "; credentials are taken from variables, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    " for s3://, and from the machine's role only with AWS_SKIP_SIGNATURE=false"
)
_CONFIGURATION: dict[str, str | None] = {
    "delta.checkpointInterval": "20",
    "delta.enableExpiredLogCleanup": "true",
    # A stream commits every few seconds. Only readers of past versions need older entries.
    "delta.logRetentionDuration": "interval 1 hours",
    # How long checkpoints list removed files.
    "delta.deletedFileRetentionDuration": "interval 1 days",
}


class _LogUnusable(Exception):
    """A log cannot be updated; the text gives the reason and a remedy."""


def update_all_logs(lake: str, manifest: Manifest) -> list[str]:
    """Bring the log of `events`, and all logs that there are, to `manifest`; returns notes.

    For jobs that add events. They complete what a dead build has left: otherwise retention would
    remove files that its logs still list.
    """
    return update_logs(lake, manifest, {**dict.fromkeys(manifest.tables), **EVENTS_WITH_COMMENTS})


def update_logs(
    lake: str, manifest: Manifest, tables: Mapping[str, StructType | None]
) -> list[str]:
    """Bring the Delta logs of `tables` to `manifest`; returns a note for each that it could not.

    Comments of columns are in the metadata of their fields. Without a schema, a log keeps the
    columns it has, and none is created. Without `deltalake`, does nothing.
    """
    if not manifest.version or importlib.util.find_spec("deltalake") is None:
        return []
    root = local_path(lake)
    try:
        storage = _storage(root)
        _require_a_file(storage, manifest)
    except Exception as problem:  # see rule 4; stores have errors of their own
        reason = f"this machine cannot read {lake}: {_first_line(problem)}"
        if "://" in root:
            reason += f" ({_lines(problem)[-1][:300]}){_CREDENTIALS_ADVICE}"
        return [f"no Delta tables: {reason}"]
    notes = []
    with private_files():
        for table, schema in tables.items():
            try:
                _update_log(storage, f"{root}/{table}", table, manifest, schema)
            except Exception as problem:  # see rule 4
                notes.append(f"Delta table {table} not updated: {_first_line(problem)}")
    return notes


def _storage(root: str) -> "pafs.FileSystem":
    """Return the lake's directory as deltalake reads it: local, or an object store."""
    import pyarrow.fs as pafs
    from deltalake.fs import DeltaStorageHandler

    return pafs.PyFileSystem(DeltaStorageHandler(root))


def _require_a_file(storage: "pafs.FileSystem", manifest: Manifest) -> None:
    """Raise `OSError` if this is not the lake: a cluster may have another one under its path."""
    listed = [(table, one) for table, files in manifest.tables.items() for one in files]
    for table, file in listed[:1]:
        if storage.get_file_info(f"{table}/{file.path}").size != file.bytes:
            raise FileNotFoundError(f"no {table}/{file.path} there")


def _update_log(
    storage: "pafs.FileSystem",
    uri: str,
    table: str,
    manifest: Manifest,
    schema: StructType | None,
) -> None:
    """Bring one log to the manifest; repeats it if another job commits at the same time."""
    from deltalake.exceptions import CommitFailedError

    for attempts_left in reversed(range(_ATTEMPTS)):
        log = _open_log(storage, uri, table)
        try:
            if log is None:
                if schema is None:
                    return
                added = _adds(storage, table, manifest.tables.get(table, []), schema)
                _create_log(uri, table, schema, added, _commit(manifest))
            elif (log.transaction_version(APP_ID) or 0) <= manifest.version:
                if schema is not None:
                    _evolve_schema(log, schema, manifest)
                _commit_changes(storage, log, table, manifest, schema or _schema_of(log))
            return
        except CommitFailedError:
            if not attempts_left:
                raise


def _open_log(storage: "pafs.FileSystem", uri: str, table: str) -> "DeltaTable | None":
    """Return the log of a table, or None if there is none. Raises `_LogUnusable`."""
    import pyarrow.fs as pafs
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    entries = storage.get_file_info(
        pafs.FileSelector(f"{table}/_delta_log", allow_not_found=True, recursive=False)
    )
    if not entries:
        return None
    remedy = f"remove {uri}/_delta_log, and the next job writes a new one"
    try:
        log = DeltaTable(uri)
        ours = log.transaction_version(APP_ID) is not None
    except DeltaError as problem:
        raise _LogUnusable(f"its log is damaged ({_first_line(problem)}): {remedy}") from None
    if not ours:
        raise _LogUnusable(f"another program wrote its log: {remedy}")
    return log


def _schema_of(log: "DeltaTable") -> StructType:
    return StructType.fromJson(json.loads(log.schema().to_json()))


def _create_log(
    uri: str, table: str, schema: StructType, added: list["AddAction"], commit: "CommitProperties"
) -> None:
    from deltalake import Schema
    from deltalake.transaction import create_table_with_add_actions

    create_table_with_add_actions(
        uri,
        Schema.from_json(schema.json()),  # Delta writes schemas as Spark does
        added,
        name=table,
        configuration=_CONFIGURATION,
        commit_properties=commit,
    )


def _evolve_schema(log: "DeltaTable", schema: StructType, manifest: Manifest) -> None:
    """Add new columns and changed comments. Columns that the lake no longer has stay, as nulls."""
    from deltalake import Schema

    known = {field.name: field for field in log.schema().fields}
    wanted = Schema.from_json(schema.json()).fields
    for field in wanted:
        if field.name in known and known[field.name].type != field.type:
            raise _LogUnusable(
                f"column {field.name} is {known[field.name].type} in its log and {field.type} in"
                f" the lake: remove {log.table_uri}_delta_log, and the next job writes a new one"
            )
    new = [field for field in wanted if field.name not in known]
    if new:
        log.alter.add_columns(new, commit_properties=_commit(manifest))
    for field in wanted:
        comment = str(field.metadata.get("comment", ""))
        if field.name in known and known[field.name].metadata.get("comment", "") != comment:
            log.alter.set_column_metadata(
                field.name, {"comment": comment}, commit_properties=_commit(manifest)
            )


def _commit_changes(
    storage: "pafs.FileSystem",
    log: "DeltaTable",
    table: str,
    manifest: Manifest,
    schema: StructType,
) -> None:
    """Add the files that the log lacks and remove those that the manifest lacks, in one commit."""
    import pyarrow as pa
    from deltalake.transaction import RemoveAction

    actions = pa.table(log.get_add_actions())
    known = {
        unquote(path): size
        for path, size in zip(
            actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True
        )
    }
    files = {one.path: one for one in manifest.tables.get(table, [])}
    new = [one for path, one in files.items() if path not in known]
    now_ms = time.time_ns() // 1_000_000
    changes: list[Any] = [
        *_adds(storage, table, new, schema),
        *(
            RemoveAction(path, True, now_ms, size)
            for path, size in known.items()
            if path not in files
        ),
    ]
    if changes:
        log.create_write_transaction(
            changes, "append", log.schema(), commit_properties=_commit(manifest)
        )


def _adds(
    storage: "pafs.FileSystem", table: str, files: Iterable[DataFile], schema: StructType
) -> list["AddAction"]:
    from deltalake.transaction import AddAction

    now_ms = time.time_ns() // 1_000_000
    return [
        AddAction(
            path=one.path,
            size=one.bytes,
            partition_values={},
            modification_time=now_ms,
            data_change=True,
            stats=read_statistics(storage, f"{table}/{one.path}", schema),
        )
        for one in files
    ]


def _commit(manifest: Manifest) -> "CommitProperties":
    """Return what a commit carries. It fails if another one came first: the log is read again."""
    from deltalake.transaction import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={LAKE_VERSION: manifest.version},
        max_commit_retries=0,
        app_transactions=[Transaction(APP_ID, manifest.version)],
    )


def _first_line(problem: Exception) -> str:
    return (_lines(problem) or [type(problem).__name__])[0][:300]


def _lines(problem: Exception) -> list[str]:
    """Return the lines of an error, without the colours and arrows of an object store's."""
    lines = (_DECORATION.sub("", line).strip() for line in str(problem).splitlines())
    return [line for line in lines if line]
