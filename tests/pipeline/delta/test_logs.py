"""The log of a Delta table follows the manifest of the lake."""

import json
import os
import shutil
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import StructType

from tests.pipeline.delta.small_lake import DAY, SCHEMA, TABLE, SmallLake, numbers
from waypost.pipeline.lake.delta import update_logs
from waypost.pipeline.lake.manifest import decode_manifest, encode_manifest
from waypost.pipeline.lake.schemas import columns


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(tmp_path / "lake")


def rows_of(lake: SmallLake) -> list[int]:
    """Return the rows that Polars finds, which must be those of deltalake."""
    uri = str(lake.root / TABLE)
    found = sorted(polars.read_delta(uri)["n"].to_list())
    assert found == sorted(DeltaTable(uri).to_pyarrow_table()["n"].to_pylist())
    return found


def log_of(lake: SmallLake) -> Path:
    return lake.root / TABLE / "_delta_log"


def actions(commit: Path) -> list[str]:
    return [next(iter(json.loads(line))) for line in commit.read_text().splitlines()]


def test_readers_see_the_files_of_the_manifest_and_no_others(lake: SmallLake) -> None:
    first, second = lake.write(numbers(1, 2)), lake.write(numbers(3))
    lake.write(numbers(99))  # of a job that died
    lake.commit(first, second)
    assert lake.update_log() == []
    assert rows_of(lake) == [1, 2, 3]
    lake.commit(second, lake.write(numbers(4)))
    assert lake.update_log() == []
    assert rows_of(lake) == [3, 4]


def test_adds_and_removes_are_one_commit_with_the_version_of_the_lake(lake: SmallLake) -> None:
    lake.commit(lake.write(numbers(1)))
    lake.commit(lake.write(numbers(2)))
    lake.update_log()
    lake.commit(lake.write(numbers(3)), lake.write(numbers(4)))
    lake.update_log()
    [_, second] = sorted(log_of(lake).glob("*.json"))
    assert sorted(actions(second)) == ["add", "add", "commitInfo", "remove", "txn"]
    [newest] = DeltaTable(log_of(lake).parent).history(1)
    assert newest["waypostLakeVersion"] == lake.manifest.version == 3


def test_an_update_without_changes_commits_nothing(lake: SmallLake) -> None:
    lake.commit(lake.write(numbers(1)))
    lake.update_log()
    before = sorted(log_of(lake).iterdir())
    assert lake.update_log() == []
    lake.commit(*lake.manifest.tables[TABLE])  # a version that changes other tables
    assert lake.update_log() == []
    assert sorted(log_of(lake).iterdir()) == before


def test_a_late_job_does_not_take_the_log_back(lake: SmallLake) -> None:
    lake.commit(lake.write(numbers(1)))
    late = decode_manifest(encode_manifest(lake.manifest))
    lake.commit(lake.write(numbers(2)))
    lake.update_log()
    assert update_logs(str(lake.root), late, {TABLE: SCHEMA}) == []
    assert rows_of(lake) == [2]


def test_files_that_another_program_added_are_removed_from_the_log(lake: SmallLake) -> None:
    lake.commit(lake.write(numbers(1)))
    lake.update_log()
    write_deltalake(log_of(lake).parent, numbers(5), mode="append")
    assert rows_of(lake) == [1, 5]
    lake.update_log()
    assert rows_of(lake) == [1]


def test_a_table_without_rows_has_its_columns(lake: SmallLake) -> None:
    lake.commit(lake.write(numbers(1)))
    both = {TABLE: SCHEMA, "empty": columns("day date, chain array<string>, at timestamp")}
    assert update_logs(str(lake.root), lake.manifest, both) == []
    assert polars.read_delta(str(lake.root / "empty")).schema == {
        "day": polars.Date,
        "chain": polars.List(polars.String),
        "at": polars.Datetime("us", "UTC"),
    }
    lake.commit()
    assert lake.update_log() == []
    assert rows_of(lake) == []


def test_columns_have_their_comments(lake: SmallLake) -> None:
    def comments(of: dict[str, str]) -> StructType:
        described = StructType.fromJson(SCHEMA.jsonValue())
        for field in described:
            field.metadata = {"comment": of[field.name]} if field.name in of else {}
        return described

    def found() -> dict[str, object]:
        fields = DeltaTable(log_of(lake).parent).schema().fields
        return {field.name: field.metadata.get("comment") for field in fields}

    lake.commit(lake.write(numbers(1)))
    lake.update_log(comments({"day": "the UTC day"}))
    assert found() == {"day": "the UTC day", "relay": None, "n": None}
    lake.update_log(comments({"day": "the UTC day", "n": "a number"}))
    assert found() == {"day": "the UTC day", "relay": None, "n": "a number"}
    lake.update_log()
    assert not any(found().values())
    before = sorted(log_of(lake).iterdir())
    lake.update_log()
    assert sorted(log_of(lake).iterdir()) == before


def test_a_new_column_is_null_in_older_files(lake: SmallLake) -> None:
    lake.commit(lake.write(numbers(1)))
    lake.update_log()
    wider = columns("day date, relay string, reason string, n bigint")
    newer = numbers(2).append_column("reason", pa.array(["why"]))
    lake.commit(*lake.manifest.tables[TABLE], lake.write(newer))
    assert lake.update_log(wider) == []
    rows = polars.read_delta(str(lake.root / TABLE)).sort("n")
    assert rows.select("n", "reason").rows() == [(1, None), (2, "why")]
    assert rows_of(lake) == [1, 2]
    missing = polars.scan_delta(str(lake.root / TABLE)).filter(polars.col("reason").is_null())
    assert missing.collect()["n"].to_list() == [1]


def test_a_column_of_another_type_is_a_note_with_the_remedy(lake: SmallLake) -> None:
    lake.commit(lake.write(numbers(1)))
    lake.update_log()
    [note] = lake.update_log(columns("day date, relay string, n string"))
    assert "column n is" in note
    assert "_delta_log, and the next job writes a new one" in note
    assert rows_of(lake) == [1]


NOON = datetime(2026, 1, 1, 12, 0, 0, 1_500, tzinfo=UTC)
VARIED = columns(
    "day date, short string, long string, n bigint, share double, at timestamp,"
    "none bigint, ok boolean, later string"
)


def write_varied(lake: SmallLake) -> None:
    """Commit a file with values of every type; its table has a column that the file lacks."""
    rows = {
        "day": pa.array([DAY, None], pa.date32()),
        "short": ["a", "b"],
        "long": ["x" * 100, "y" * 100],
        "n": pa.array([3, -1], pa.int64()),
        "share": [0.5, float("inf")],
        "at": pa.array([NOON, NOON], pa.timestamp("us", "UTC")),
        "none": pa.array([None, None], pa.int64()),
        "ok": [True, False],
    }
    lake.commit(lake.write(pa.table(rows)))
    assert lake.update_log(VARIED) == []


def test_statistics_bound_the_values_of_a_file(lake: SmallLake) -> None:
    write_varied(lake)
    [commit] = log_of(lake).glob("*.json")
    [add] = [json.loads(line)["add"] for line in commit.read_text().splitlines() if '"add"' in line]
    statistics = json.loads(add["stats"])
    nulls = {"day": 1, "none": 2, "later": 2}
    assert statistics["numRecords"] == 2
    assert statistics["nullCount"] == {name: nulls.get(name, 0) for name in VARIED.names}
    assert statistics["minValues"] == {
        "day": "2026-01-01",
        "short": "a",
        "long": "x" * 64,
        "n": -1,
        "share": 0.5,
        "at": "2026-01-01T12:00:00.001Z",
    }
    assert statistics["maxValues"] == {
        "day": "2026-01-01",
        "short": "b",
        "n": 3,
        "at": "2026-01-01T12:00:00.002Z",
    }


def test_a_filter_finds_values_at_the_bounds(lake: SmallLake) -> None:
    write_varied(lake)
    scan = polars.scan_delta(str(lake.root / TABLE))
    for wanted in (
        polars.col("at") == NOON,
        polars.col("long") == "y" * 100,
        polars.col("share") > 1.0,
        polars.col("day") == DAY,
        polars.col("later").is_null(),
    ):
        assert scan.filter(wanted).collect().height >= 1


def test_a_damaged_log_is_a_note_and_stops_no_other_table(lake: SmallLake) -> None:
    lake.commit(lake.write(numbers(1)))
    lake.commit(lake.write(numbers(2), "other"), table="other")
    both = {TABLE: SCHEMA, "other": SCHEMA}
    log_of(lake).mkdir()
    (log_of(lake) / f"{0:020}.json").write_text("{broken")
    [note] = update_logs(str(lake.root), lake.manifest, both)
    assert note.startswith("Delta table t not updated: its log is damaged")
    assert f"remove {log_of(lake)}" in note
    assert polars.read_delta(str(lake.root / "other"))["n"].to_list() == [2]
    shutil.rmtree(log_of(lake))
    assert update_logs(str(lake.root), lake.manifest, both) == []
    assert rows_of(lake) == [1]


def test_without_a_schema_a_log_follows_with_its_own_columns_and_none_is_created(
    lake: SmallLake,
) -> None:
    lake.commit(lake.write(numbers(1)))
    lake.update_log()
    lake.commit(lake.write(numbers(2)))
    lake.commit(lake.write(numbers(3), "other"), table="other")
    assert update_logs(str(lake.root), lake.manifest, {TABLE: None, "other": None}) == []
    assert rows_of(lake) == [2]
    added = pa.table(DeltaTable(log_of(lake).parent).get_add_actions(flatten=True))
    assert added["min.n"].to_pylist() == [2]
    assert not (lake.root / "other" / "_delta_log").exists()


def test_a_log_without_its_first_commit_is_written(lake: SmallLake) -> None:
    lake.commit(lake.write(numbers(1)))
    log_of(lake).mkdir()
    (log_of(lake) / f"{0:020}.json#1").write_text("of a job that was ki")
    assert lake.update_log() == []
    assert rows_of(lake) == [1]


def test_a_log_of_another_program_is_left_alone(lake: SmallLake) -> None:
    lake.commit(lake.write(numbers(1)))
    write_deltalake(log_of(lake).parent, numbers(7))
    [note] = lake.update_log()
    assert "another program wrote its log" in note
    assert rows_of(lake) == [7]


def test_something_that_is_no_log_in_its_place_is_a_note(lake: SmallLake) -> None:
    lake.commit(lake.write(numbers(1)))
    log_of(lake).write_text("not a directory")
    [note] = lake.update_log()
    assert note.startswith("Delta table t not updated: ")


def test_a_lake_that_this_machine_cannot_read_is_one_note(lake: SmallLake, tmp_path: Path) -> None:
    lake.commit(lake.write(numbers(1)))
    elsewhere = tmp_path / "elsewhere"
    [note] = update_logs(str(elsewhere), lake.manifest, {TABLE: SCHEMA, "other": SCHEMA})
    assert note.startswith(f"no Delta tables: this machine cannot read {elsewhere}")
    assert not elsewhere.exists()
    elsewhere.mkdir()
    [note] = update_logs(str(elsewhere), lake.manifest, {TABLE: SCHEMA, "other": SCHEMA})
    assert "this machine cannot read" in note
    assert not any(elsewhere.iterdir())


def test_without_the_package_there_is_no_log_and_no_note(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.commit(lake.write(numbers(1)))
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert lake.update_log() == []
    assert not log_of(lake).exists()


def test_a_log_does_not_grow_without_end(lake: SmallLake) -> None:
    for n in range(45):
        lake.commit(lake.write(numbers(n)))
        lake.update_log()
        for entry in log_of(lake).iterdir():
            two_hours_ago = entry.stat().st_mtime - 7200
            os.utime(entry, (two_hours_ago, two_hours_ago))
    assert len(list(log_of(lake).iterdir())) < 25
    assert rows_of(lake) == [44]


def test_logs_are_for_their_owner_only(lake: SmallLake) -> None:
    before = os.umask(0o022)
    try:
        for n in range(21):  # with a checkpoint
            lake.commit(lake.write(numbers(n)))
            lake.update_log()
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    entries = [log_of(lake), *log_of(lake).iterdir()]
    assert any(entry.name.endswith(".checkpoint.parquet") for entry in entries)
    assert [one.name for one in entries if stat.S_IMODE(one.stat().st_mode) & 0o077] == []
