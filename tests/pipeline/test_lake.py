"""A lake changes in one commit, readers see one version, and files stay few."""

from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.asked import counted_queries
from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.files import LOCAL_PATHS
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.lake.manifest import Manifest
from waypost.pipeline.lake.manifest_files import write_manifest
from waypost.pipeline.lake.packs import Upkeep
from waypost.pipeline.lake.schemas import columns

SCHEMA = columns("day date, relay string, n bigint")
FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)
DAYS = [FIRST + timedelta(days=number) for number in range(40)]


def table(spark: SparkSession, *rows: tuple[date, int]) -> DataFrame:
    return spark.createDataFrame([(day, "r", n) for day, n in rows], SCHEMA)


def content(lake: Lake) -> list[tuple[date, int]]:
    return sorted((row.day, row.n) for row in lake.read("t", SCHEMA).collect())


def rewrite(lake: Lake, rows: DataFrame, *days: date, name: str = "t") -> None:
    change = lake.begin()
    change.rewrite(name, rows, [str(day) for day in days])
    change.commit()


def new_lake(spark: SparkSession, tmp_path: Path, upkeep: Upkeep | None = None) -> Lake:
    return open_lake(spark, str(tmp_path / "lake"), create=True, upkeep=upkeep)


def packs_of(lake: Lake) -> set[str]:
    return {file.pack for file in lake.manifest.tables["t"]}


def stored_packs(root: Path) -> set[str]:
    """Return the packs of the table on disk that have files."""
    table = root / "lake" / "t"
    return {str(path.parent.relative_to(table)) for path in table.rglob("*.parquet")}


def test_uncommitted_rows_are_invisible(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    change = lake.begin()
    change.rewrite("t", table(spark, (FIRST, 1)), [str(FIRST)])
    assert [row.n for row in change.read("t", SCHEMA).collect()] == [1]
    assert content(open_lake(spark, lake.path, create=True)) == []
    change.commit()
    assert content(open_lake(spark, lake.path)) == [(FIRST, 1)]


def test_a_reader_keeps_its_version_while_the_next_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake(spark, tmp_path)
    rewrite(lake, table(spark, (FIRST, 1), (SECOND, 2)), FIRST, SECOND)
    reader = open_lake(spark, lake.path)
    rewrite(lake, table(spark, (FIRST, 10)), FIRST)
    assert content(reader) == [(FIRST, 1), (SECOND, 2)]
    assert content(lake) == [(FIRST, 10), (SECOND, 2)]


def test_a_day_can_be_rewritten_many_times(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    for n in range(4):
        rewrite(lake, table(spark, (FIRST, n)), FIRST)
        assert content(open_lake(spark, lake.path)) == [(FIRST, n)]


def test_a_day_left_without_rows_does_not_show_its_older_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake(spark, tmp_path)
    rewrite(lake, table(spark, (FIRST, 1), (SECOND, 1)), FIRST, SECOND)
    rewrite(lake, table(spark, (SECOND, 2)), FIRST, SECOND)
    assert content(lake) == [(SECOND, 2)]
    rewrite(lake, table(spark), FIRST, SECOND)
    assert content(open_lake(spark, lake.path)) == []


def test_leftovers_of_a_dead_job_never_reappear(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    rewrite(lake, table(spark, (FIRST, 1)), FIRST)
    died = lake.begin()
    died.rewrite("t", table(spark, (FIRST, 99), (SECOND, 99)), [str(FIRST), str(SECOND)])
    rewrite(open_lake(spark, lake.path), table(spark, (FIRST, 2)), FIRST, SECOND)
    assert content(open_lake(spark, lake.path)) == [(FIRST, 2)]


def test_the_second_of_two_concurrent_commits_is_rejected(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake(spark, tmp_path)
    slow = lake.begin()
    slow.rewrite("t", table(spark, (FIRST, 1)), [str(FIRST)])
    rewrite(open_lake(spark, lake.path, create=True), table(spark, (SECOND, 2)), SECOND)
    with pytest.raises(LakeUnusable, match="run this job again"):
        slow.commit()


def test_opening_a_missing_lake_is_an_error_with_the_command_to_create_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(LakeUnusable, match="pipeline ingest"):
        open_lake(spark, str(tmp_path / "nowhere"))


@pytest.mark.parametrize("name", ["a[1]", "a]", "{a", "b}", "a*", "a?", "a\\b", "a\nb"])
def test_a_lake_in_a_directory_that_spark_takes_for_a_pattern_is_rejected(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    inside = tmp_path / name
    inside.mkdir()
    for path in (str(inside), f"file:{inside}/lake", f"s3a://bucket/{name}/lake"):
        with pytest.raises(LakeUnusable, match="without wildcards or brackets"):
            open_lake(spark, path, create=True)
    monkeypatch.chdir(inside)
    with pytest.raises(LakeUnusable, match="without wildcards or brackets"):
        open_lake(spark, "./lake", create=True)


def test_a_lake_of_a_later_format_is_not_touched(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    rewrite(lake, table(spark, (FIRST, 1)), FIRST)
    (text,) = (tmp_path / "lake" / "manifest").glob("slot=*/part-*")
    for damaged in ('{"format":3,"version":1}', '{"format":'):
        for crc in text.parent.glob(".*.crc"):
            crc.unlink()
        text.write_text(damaged)
        with pytest.raises(LakeUnusable, match=r"format 3|invalid manifest"):
            open_lake(spark, lake.path)


def test_many_days_with_few_rows_are_few_files(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    rewrite(lake, table(spark, *((day, 1) for day in DAYS)), *DAYS)
    files = lake.manifest.tables["t"]
    assert len(files) <= 2  # the session has two cores
    assert sum(file.rows for file in files) == len(DAYS)
    assert min(file.first_day for file in files) == str(DAYS[0])
    assert max(file.last_day for file in files) == str(DAYS[-1])
    assert lake.manifest.days("t") == [str(day) for day in DAYS]
    for file in files:
        path = tmp_path / "lake" / "t" / file.path
        assert (path.stat().st_size, spark.read.parquet(str(path)).columns) == (
            file.bytes,
            ["day", "relay", "n"],
        )


def test_a_change_of_a_day_rewrites_only_the_files_around_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake(spark, tmp_path, Upkeep(pack_bytes=300))
    rewrite(lake, table(spark, *((day, 1) for day in DAYS)), *DAYS)
    rewrite(lake, table(spark, (DAYS[20], 2)), DAYS[20])  # large for this lake: cut into packs
    assert sorted(row[1] for row in content(lake)) == [1] * 39 + [2]
    before = packs_of(lake)
    assert len(before) > 3
    rewrite(lake, table(spark, (DAYS[20], 3)), DAYS[20])
    assert (DAYS[20], 3) in content(lake)
    assert len(content(lake)) == len(DAYS)
    untouched = packs_of(lake) & before
    assert len(before) > len(untouched) >= len(before) - 2


def test_reading_some_days_skips_the_files_of_others(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    for day in (FIRST, SECOND):
        rewrite(lake, table(spark, (day, day.day)), day)
    second = lake.read("t", SCHEMA, [str(SECOND), "1999-01-01"])
    assert [row.n for row in second.collect()] == [SECOND.day]
    assert len(second.inputFiles()) == 1
    rewrite(lake, table(spark, (FIRST, 7), (SECOND, 8)), FIRST, SECOND)
    assert [row.n for row in lake.read("t", SCHEMA, [str(SECOND)]).collect()] == [8]
    assert lake.read("t", SCHEMA, []).isEmpty()


def test_small_files_are_merged_when_they_become_many(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path, Upkeep(small_files_max=4))
    counts = []
    for day in DAYS[:8]:
        rewrite(lake, table(spark, (day, day.day)), day)
        counts.append(len(lake.manifest.tables["t"]))
    assert max(counts) <= 5
    assert content(lake) == [(day, day.day) for day in DAYS[:8]]


def test_replaced_files_stay_for_some_versions_and_are_then_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake(spark, tmp_path, Upkeep(keep_versions=2, keep_s=0))
    rewrite(lake, table(spark, (FIRST, 0)), FIRST)
    first = packs_of(lake)
    reader = open_lake(spark, lake.path)
    rewrite(lake, table(spark, (FIRST, 1)), FIRST)
    rewrite(lake, table(spark, (FIRST, 2)), FIRST)
    assert content(reader) == [(FIRST, 0)]
    for n in range(3, 9):
        rewrite(lake, table(spark, (FIRST, n)), FIRST)
        assert len(stored_packs(tmp_path)) <= 4
        assert len(lake.manifest.retired) <= 3
    assert not first & stored_packs(tmp_path)


def test_replaced_files_stay_for_a_time_however_many_versions_follow(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake(spark, tmp_path, Upkeep(keep_versions=1))
    rewrite(lake, table(spark, (FIRST, 0)), FIRST)
    reader = open_lake(spark, lake.path)
    for n in range(1, 5):
        rewrite(lake, table(spark, (FIRST, n)), FIRST)
    assert content(reader) == [(FIRST, 0)]


def test_leftovers_of_dead_jobs_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path, Upkeep(keep_s=0, leftover_s=0, sweep_every=1))
    rewrite(lake, table(spark, (FIRST, 1)), FIRST)
    died = lake.begin()
    died.rewrite("t", table(spark, (FIRST, 99)), [str(FIRST)])
    left = stored_packs(tmp_path) - packs_of(lake)
    assert left
    rewrite(lake, table(spark, (SECOND, 2)), SECOND)
    assert left <= stored_packs(tmp_path)  # the job could be at work until another has committed
    rewrite(lake, table(spark, (SECOND, 3)), SECOND)
    assert not left & stored_packs(tmp_path)
    assert content(lake) == [(FIRST, 1), (SECOND, 3)]


def test_a_job_does_not_remove_what_another_committed_while_it_ran(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake(spark, tmp_path, Upkeep(keep_s=0, leftover_s=0, sweep_every=1))
    rewrite(lake, table(spark, (FIRST, 1)), FIRST)
    late = lake.begin()
    late.rewrite("t", table(spark, (FIRST, 2)), [str(FIRST)])
    rewrite(open_lake(spark, lake.path), table(spark, (FIRST, 3)), FIRST, name="u")
    sweeping = open_lake(spark, lake.path, upkeep=lake.upkeep)
    change = sweeping.begin()
    change.rewrite("v", table(spark, (FIRST, 4)), [str(FIRST)])
    late.commit()
    change.commit()
    assert packs_of(sweeping) == packs_of(lake)
    assert content(open_lake(spark, lake.path)) == [(FIRST, 2)]


def test_what_a_job_has_written_stays_while_others_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake(spark, tmp_path, Upkeep(keep_s=0, sweep_every=1))
    rewrite(lake, table(spark, (FIRST, 1)), FIRST)
    long = lake.begin()
    long.rewrite("t", table(spark, (FIRST, 2)), [str(FIRST)])
    others = open_lake(spark, lake.path, upkeep=lake.upkeep)
    for n in range(3):
        rewrite(others, table(spark, (FIRST, n)), FIRST, name="u")
    long.commit()
    assert content(open_lake(spark, lake.path)) == [(FIRST, 2)]


def test_a_failed_search_for_leftovers_does_not_fail_what_is_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> dict[str, int]:
        raise PySparkException("no answer")

    monkeypatch.setattr("waypost.pipeline.lake.lake.find_writes", fail)
    lake = new_lake(spark, tmp_path, Upkeep(sweep_every=1))
    rewrite(lake, table(spark, (FIRST, 1)), FIRST)
    assert content(open_lake(spark, lake.path)) == [(FIRST, 1)]


def test_a_lake_that_only_spark_reaches_is_kept_small_as_well(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "lake").mkdir()
    name = f"{tmp_path.name.replace('_', '-')}-{tmp_path.parent.name}"
    spark.conf.set(f"fs.viewfs.mounttable.{name}.link./lake", f"file://{tmp_path}/lake")
    path = f"viewfs://{name}/lake"
    upkeep = Upkeep(keep_versions=1, keep_s=0, leftover_s=0, sweep_every=1)
    lake = open_lake(spark, path, create=True, upkeep=upkeep)
    rewrite(lake, table(spark, (FIRST, 1), (SECOND, 2)), FIRST, SECOND)
    files = lake.manifest.tables["t"]
    assert [(file.rows, file.first_day, file.last_day) for file in files] == [
        (1, str(day), str(day)) for day in (FIRST, SECOND)
    ]
    assert packs_of(lake) == stored_packs(tmp_path)
    lake.begin().rewrite("t", table(spark, (FIRST, 99)), [str(FIRST)])  # without a commit
    assert len(stored_packs(tmp_path)) == 2
    for n in range(3, 6):
        rewrite(lake, table(spark, (FIRST, n)), FIRST)
    rewrite(lake, table(spark), FIRST)
    assert content(open_lake(spark, path)) == [(SECOND, 2)]
    assert len(stored_packs(tmp_path)) <= 2


def test_a_local_lake_is_opened_and_committed_without_a_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake(spark, tmp_path)
    with counted_queries(spark) as asked:
        lake.begin().commit()
        lake.begin().commit()
        assert open_lake(spark, lake.path).manifest.version == 2
        assert open_lake(spark, f"file:{lake.path}").manifest.version == 2
    assert asked.queries == 0


def test_of_two_jobs_that_write_the_same_version_one_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake(spark, tmp_path)
    write_manifest(spark, lake.path, Manifest(version=1, table_days={"t": [str(FIRST)]}))
    with pytest.raises(LakeUnusable, match="run this job again"):
        write_manifest(spark, lake.path, Manifest(version=1))
    assert open_lake(spark, lake.path).manifest.days("t") == [str(FIRST)]
    names = [path.name for path in (tmp_path / "lake" / "manifest").rglob("*") if path.is_file()]
    assert names == ["part-00000000000000000001.json"]


def test_manifests_of_spark_and_of_this_process_follow_each_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake(spark, tmp_path)
    try:
        for version in range(1, 7):
            spark.conf.set(LOCAL_PATHS, str(version % 3 == 0).lower())
            lake = open_lake(spark, lake.path, create=True)
            lake.begin().commit()
            assert lake.manifest.version == version
    finally:
        spark.conf.set(LOCAL_PATHS, "true")
    assert len(list((tmp_path / "lake").glob("manifest/slot=*/part-*"))) == 2
