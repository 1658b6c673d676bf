"""A reader in another process sees whole versions only, whatever happens to the jobs."""

import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import polars
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.eventually import eventually_blocking
from tests.faults.seeds import seeded
from tests.pipeline.delta.looping_reader import PATIENCE_S, Read, looping_reader
from tests.pipeline.delta.small_lake import FILES, SmallLake, numbers
from tests.pipeline.tables.conftest import split_journal
from tests.pipeline.test_kills import kill_job
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.tables import messages
from waypost.pipeline.tables.build import build
from waypost.simulate import SimulationOptions, simulate

KILLS = int(os.environ.get("WAYPOST_KILLS", "1"))


def kill_after(lake: Path, versions: int) -> None:
    """Start a job that commits without end; kill it some versions later."""
    wanted = SmallLake(lake).manifest.version + versions
    job = subprocess.Popen([sys.executable, "-m", "tests.pipeline.delta.small_lake", str(lake)])
    try:
        eventually_blocking(
            lambda: SmallLake(lake).manifest.version >= wanted or job.poll() is not None,
            f"version {wanted}",
            timeout_s=PATIENCE_S,
        )
        assert job.poll() is None
    finally:
        job.kill()
        job.wait()


def is_whole(read: Read) -> bool:
    """Return whether the rows are those of one version of `commit_versions`."""
    return read.least == read.most and read.rows == FILES * (read.most or 0) > 0


@pytest.mark.slow
@pytest.mark.process
def test_a_reader_sees_whole_versions_while_jobs_are_killed(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    first = SmallLake(lake)
    first.commit(*(first.write(numbers(1)) for _ in range(FILES)))
    first.update_log()
    with seeded() as rng, looping_reader(lake / "t", "n", tmp_path / "reads") as reads:
        for _ in range(4 * KILLS):
            kill_after(lake, rng.randint(1, 8))
    seen = reads.all()
    assert [read for read in seen if not is_whole(read)] == []
    versions = [read.most or 0 for read in seen]
    assert versions == sorted(versions)
    assert len(set(versions)) > KILLS
    after = SmallLake(lake)
    assert after.update_log() == []  # what the last kill left out
    assert set(polars.read_delta(str(lake / "t"))["n"]) == {after.manifest.version}


def as_read(lake: Lake) -> Read:
    """Return what a reader of the current version of `messages` must see."""
    seq = F.col("seq")
    rows = lake.read(messages.NAME, messages.SCHEMA).agg(
        F.count(seq), F.min(seq), F.max(seq), F.sum(seq)
    )
    return Read(*rows.collect()[0])


@pytest.mark.slow
def test_a_reader_sees_whole_builds_while_builds_are_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    simulate(SimulationOptions(messages=600, out=tmp_path / "all", agents=40, seed=5))
    pieces = split_journal(tmp_path / "all" / "journal", tmp_path / "pieces", 1 + KILLS)
    lake, journal = tmp_path / "lake", tmp_path / "data" / "journal"
    journal.mkdir(parents=True)
    committed: list[Read] = []

    def take_a_piece() -> None:
        piece = pieces[len(committed)]
        piece.rename(journal / piece.name)
        opened = open_lake(spark, str(lake), create=True)
        ingest(opened, parse_sources([str(tmp_path / "data")]))

    def finish() -> None:
        opened = open_lake(spark, str(lake))
        assert build(opened).notes == []
        committed.append(as_read(opened))

    take_a_piece()
    finish()
    with (
        seeded() as rng,
        looping_reader(lake / messages.NAME, "seq", tmp_path / "reads") as reads,
    ):
        for _ in range(KILLS):
            take_a_piece()
            kill_job("build", lake, tmp_path / "data", rng.randint(1, 60))
            finish()
            reads.wait_for_more()
    assert [read for read, _ in groupby(reads.all())] == committed
