"""Lakes with a directory for each day, as earlier versions wrote them, are converted."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.pipeline.journals import write_journal
from tests.pipeline.test_ingest import sealed_traffic
from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.jobs.convert import convert
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.lake.manifest import encode_manifest
from waypost.pipeline.lake.packs import Upkeep
from waypost.pipeline.tables.build import build
from waypost.pipeline.tables.registry import TABLES


def rows_of(lake: Lake, table: str) -> list[str]:
    schema = {"events": EVENTS, **TABLES}[table]
    return sorted(str(row) for row in lake.read(table, schema).collect())


def write_older(lake: Lake, path: Path) -> None:
    """Write the events of a lake in the layout of format 1, with leftovers of a dead job."""
    events = lake.read("events", EVENTS)
    batch = F.when(F.col("seq") % 2 == 0, 1).otherwise(3)
    parted = events.withColumn("batch", batch)
    died = events.withColumn("batch", F.lit(4))
    for rows in (parted, died):
        rows.write.partitionBy("day", "batch").mode("append").parquet(f"{path}/events")
    traffic = lake.read("traffic", TABLES["traffic"])
    slots = traffic.withColumn("slot", F.lit(1))
    slots.write.partitionBy("day", "slot").parquet(f"{path}/traffic")
    manifest = {
        "format": 1,
        "version": 3,
        "relays": json.loads(encode_manifest(lake.manifest))["relays"],
        "tables": {
            "events": {day: ["batch=1", "batch=3"] for day in lake.manifest.days("events")},
            "traffic": {day: ["slot=1"] for day in lake.manifest.days("traffic")},
        },
        "unbuilt": [],
    }
    for version in (2, 3):
        directory = path / "manifest" / f"slot={version % 2}"
        directory.mkdir(parents=True)
        (directory / "part-00000").write_text(json.dumps({**manifest, "version": version}))


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    root = tmp_path_factory.mktemp("whole")
    write_journal(root / "data", sealed_traffic)
    lake = open_lake(spark, str(root / "lake"), create=True)
    ingest(lake, parse_sources([str(root / "data")]))
    build(lake)
    return lake


def test_an_older_lake_is_converted_with_all_its_events(
    spark: SparkSession, tmp_path: Path, whole: Lake
) -> None:
    path = tmp_path / "lake"
    write_older(whole, path)
    with pytest.raises(LakeUnusable, match=f"waypost pipeline convert --lake {path}"):
        open_lake(spark, str(path))
    converted = convert(spark, str(path))
    assert converted.events == whole.manifest.events
    assert converted.days == whole.manifest.days("events")
    lake = open_lake(spark, str(path), upkeep=Upkeep(keep_versions=1, keep_s=0))
    assert lake.manifest.relays == whole.manifest.relays
    build(lake)
    for table in ("events", "messages", "traffic", "senders"):
        assert rows_of(lake, table) == rows_of(whole, table)
    assert not [*path.glob("*/day=*")]
    assert convert(spark, str(path)).events == 0
    assert open_lake(spark, str(path)).manifest.version == lake.manifest.version


def test_only_a_lake_can_be_converted(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LakeUnusable, match="no lake at"):
        convert(spark, str(tmp_path / "nothing"))
