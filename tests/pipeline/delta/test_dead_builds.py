"""Every job brings the logs of all tables to the manifest, also those a dead build left behind."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.jobs.import_trace import import_trace
from waypost.pipeline.jobs.stream import StreamOptions, stream
from waypost.pipeline.jobs.synthesize import synthesize
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.delta import update_logs
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.lake.schemas import columns
from waypost.simulate import SimulationOptions, simulate

TABLE = "built"
SCHEMA = columns("day date, n bigint")


def rewrite(lake: Lake, n: int) -> None:
    change = lake.begin()
    change.rewrite(TABLE, lake.spark.createDataFrame([(date(2026, 1, 1), n)], SCHEMA))
    change.commit()


def ingest_again(lake: Lake, data: Path) -> None:
    ingest(lake, parse_sources([str(data)]))


def ingest_more(lake: Lake, data: Path) -> None:
    ingest(lake, parse_sources([f"more={data}"]))


def import_some(lake: Lake, data: Path) -> None:
    trace = data.with_name("mails.txt")
    trace.write_text("src dst time\n1 2 1000000\n")
    import_trace(lake, str(trace))


def synthesize_some(lake: Lake, data: Path) -> None:
    synthesize(lake, str(data / "journal"), 100, "copy")


def stream_some(lake: Lake, data: Path) -> None:
    options = StreamOptions(until_idle=True)
    stream(lake.spark, lake.path, parse_sources([str(data)]), options, build=lambda _: None)


@pytest.mark.parametrize(
    "job", [ingest_again, ingest_more, import_some, synthesize_some, stream_some]
)
def test_a_job_completes_the_log_that_a_dead_build_left_behind(
    spark: SparkSession, tmp_path: Path, job: Callable[[Lake, Path], None]
) -> None:
    simulate(SimulationOptions(messages=50, agents=24, seed=3, out=tmp_path / "data"))
    lake = open_lake(spark, str(tmp_path / "lake"), create=True)
    ingest(lake, parse_sources([str(tmp_path / "data")]))
    rewrite(lake, 1)
    assert update_logs(lake.path, lake.manifest, {TABLE: SCHEMA}) == []
    rewrite(lake, 2)  # of a build that died before it wrote the log
    job(lake, tmp_path / "data")
    now = open_lake(spark, lake.path).manifest
    log = DeltaTable(f"{lake.path}/{TABLE}")
    assert [Path(uri).name for uri in log.file_uris()] == [
        Path(one.path).name for one in now.tables[TABLE]
    ]
