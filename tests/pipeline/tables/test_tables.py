"""Every table against another engine, and built in steps against built at once."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.tables.conftest import BuiltLake, ingest_and_build
from tests.pipeline.tables.journal_by_hand import (
    write_first_part,
    write_message_of_same_id,
    write_message_with_end,
)
from tests.pipeline.tables.oracle import ANSWERED, Oracle, assert_same_rows, spark_rows
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import open_lake
from waypost.pipeline.lake.manifest import encode_manifest
from waypost.pipeline.tables import loops, messages
from waypost.pipeline.tables.build import build
from waypost.pipeline.tables.registry import TABLES

WITH_TEXTS = {"loops", "anomalies"}  # their texts are tested one by one


def test_every_table_without_texts_has_an_oracle() -> None:
    assert set(ANSWERED) == set(TABLES) - WITH_TEXTS


@pytest.mark.parametrize("table", ANSWERED)
def test_a_table_of_simulated_traffic_equals_sql_over_the_journal(
    simulated: BuiltLake, table: str
) -> None:
    wanted = Oracle(simulated.journal, simulated.relay).rows(table, TABLES[table])
    assert_same_rows(spark_rows(simulated.lake.read(table, TABLES[table])), wanted)
    assert wanted


@pytest.mark.parametrize("table", ANSWERED)
def test_a_table_of_rare_cases_equals_sql_over_the_journal(by_hand: BuiltLake, table: str) -> None:
    wanted = Oracle(by_hand.journal, by_hand.relay).rows(table, TABLES[table])
    assert_same_rows(spark_rows(by_hand.lake.read(table, TABLES[table])), wanted)
    assert wanted


@pytest.mark.parametrize("table", TABLES)
def test_a_table_built_in_steps_equals_one_built_at_once(
    simulated: BuiltLake, in_steps: BuiltLake, table: str
) -> None:
    at_once = spark_rows(simulated.lake.read(table, TABLES[table]))
    assert_same_rows(spark_rows(in_steps.lake.read(table, TABLES[table])), at_once)


def test_a_rebuilt_day_keeps_apart_messages_of_one_id(spark: SparkSession, tmp_path: Path) -> None:
    write_message_with_end(tmp_path)
    lake = open_lake(spark, str(tmp_path / "lake"), create=True)
    ingest_and_build(lake, "hand", tmp_path)
    write_message_of_same_id(tmp_path)
    assert ingest_and_build(lake, "hand", tmp_path).built.days == ["2026-01-02"]
    wanted = Oracle(tmp_path / "journal", "hand").rows(messages.NAME, messages.SCHEMA)
    assert_same_rows(spark_rows(lake.read(messages.NAME, messages.SCHEMA)), wanted)
    at_once = open_lake(spark, str(tmp_path / "at-once"), create=True)
    ingest_and_build(at_once, "hand", tmp_path)
    assert_same_rows(spark_rows(at_once.read(messages.NAME, messages.SCHEMA)), wanted)


def test_a_build_with_nothing_new_changes_nothing(in_steps: BuiltLake) -> None:
    before = in_steps.lake.manifest.version
    assert build(in_steps.lake).nothing_new
    assert in_steps.lake.manifest.version == before


def test_an_unaffected_day_keeps_its_rows(by_hand: BuiltLake) -> None:
    first, second = (step.manifest for step in by_hand.steps)
    assert by_hand.steps[1].built.days == ["2026-01-02", "2026-01-03", "2026-01-04"]
    assert {table for table in TABLES if "2026-01-01" in first.days(table)} == {
        table for table in TABLES if "2026-01-01" in second.days(table)
    }
    assert first.tables["events"] == second.tables["events"][: len(first.tables["events"])]


def test_a_build_counts_the_messages_it_wrote(by_hand: BuiltLake) -> None:
    first, second = by_hand.steps
    assert first.built.days == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert (first.built.messages, second.built.messages) == (17, 8)
    assert by_hand.lake.manifest.unbuilt == []


def test_a_failing_table_ends_the_others_and_leaves_the_lake_unchanged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_first_part(tmp_path)
    lake = open_lake(spark, str(tmp_path / "lake"), create=True)
    ingest(lake, parse_sources([f"hand={tmp_path}"]))
    before = encode_manifest(lake.manifest)

    def fail(*_: object) -> None:
        raise RuntimeError("no table today")

    with monkeypatch.context() as broken:
        broken.setattr(loops, "build", fail)
        with pytest.raises(RuntimeError, match="no table today"):
            build(lake)
    # All writers have ended: none of them outlives the job.
    assert not [one for one in threading.enumerate() if one.name.startswith("build")]
    assert encode_manifest(open_lake(spark, lake.path).manifest) == before
    assert build(lake).messages > 0
    assert lake.read(loops.NAME, loops.SCHEMA).count() > 0
