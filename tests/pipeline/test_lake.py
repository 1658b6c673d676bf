"""A lake changes in one commit, and readers see one version."""

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.lake.schemas import columns

SCHEMA = columns("day date, relay string, n bigint")
FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)


def table(spark: SparkSession, *rows: tuple[date, int]) -> DataFrame:
    return spark.createDataFrame([(day, "r", n) for day, n in rows], SCHEMA)


def content(lake: Lake) -> list[tuple[date, int]]:
    return sorted((row.day, row.n) for row in lake.read("t", SCHEMA).collect())


def rewrite(lake: Lake, rows: DataFrame, *days: date) -> None:
    change = lake.begin()
    change.rewrite("t", rows, [str(day) for day in days])
    change.commit()


def new_lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return open_lake(spark, str(tmp_path / "lake"), create=True)


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


def test_a_lake_of_a_later_format_is_not_touched(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    rewrite(lake, table(spark, (FIRST, 1)), FIRST)
    (text,) = (tmp_path / "lake" / "manifest").glob("slot=*/part-*")
    for damaged in ('{"format":2,"version":1}', '{"format":'):
        for crc in text.parent.glob(".*.crc"):
            crc.unlink()
        text.write_text(damaged)
        with pytest.raises(LakeUnusable, match=r"format 2|invalid manifest"):
            open_lake(spark, lake.path)
