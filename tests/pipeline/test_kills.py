"""Jobs killed at random moments and run again give the same lake, and readers see whole versions.

`WAYPOST_KILLS` says how often each job is killed.
"""

import contextlib
import os
import signal
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
from tests.pipeline.conftest import QUICK
from tests.pipeline.delta.looping_reader import Read, holds_each_event_once, looping_reader
from tests.pipeline.tables.conftest import split_journal
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, Lake, open_lake
from waypost.pipeline.lake.packs import Upkeep
from waypost.pipeline.tables import messages
from waypost.pipeline.tables.build import build
from waypost.pipeline.tables.registry import TABLES
from waypost.simulate import SimulationOptions, simulate

KILLS = int(os.environ.get("WAYPOST_KILLS", "1"))
"""Kills of each job; each takes about as long as the job."""
ENDS_WITHIN_S = 300.0
INGEST_FILES, BUILD_FILES, MERGE_FILES = 6, 60, 4
"""Files after which a job is killed, at most; about as many as it writes."""


class KilledLake:
    """A lake whose jobs are killed, and a journal that grows by one segment at a time."""

    def __init__(self, spark: SparkSession, root: Path, segments: int) -> None:
        self._spark = spark
        self.root = root
        self.path = root / "lake"
        self.data = root / "traffic"
        journal = self.data / "journal"
        simulate(SimulationOptions(messages=600, out=self.data, agents=40, seed=11))
        self._later = split_journal(journal, root / "segments", segments)
        for whole in journal.glob("*.jsonl"):
            whole.unlink()

    def add_segment(self) -> None:
        """Add the next segment to the journal."""
        segment = self._later.pop(0)
        segment.rename(self.data / "journal" / segment.name)

    def ingest(self) -> Lake:
        lake = open_lake(self._spark, str(self.path), create=True)
        assert ingest(lake, parse_sources([str(self.data)])).notes == []
        return lake

    def build(self) -> Read:
        """Build the tables; returns what a reader of `messages` must see from now on."""
        lake = open_lake(self._spark, str(self.path))
        assert build(lake).notes == []
        return as_read(lake)

    def kill(self, job: str, files_more: int, table: str = "") -> None:
        """Start a job in another process; kill it once it has written `files_more` files."""
        watched = self.path / table
        wanted = count_files(watched) + files_more
        process = start_job(job, self.path, self.data)
        try:
            eventually_blocking(
                lambda: count_files(watched) >= wanted or process.poll() is not None,
                f"{wanted} files of {job}",
                timeout_s=ENDS_WITHIN_S,
            )
            assert process.poll() in (None, 0)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Python and the JVM at once
            process.wait()


def start_job(job: str, lake: Path, data: Path) -> "subprocess.Popen[bytes]":
    source = ["--journal", str(data)] if job == "ingest" else []
    conf = [word for name, value in QUICK.items() for word in ("--conf", f"{name}={value}")]
    where = ["--lake", str(lake), "--master", "local[2]", *conf]
    return subprocess.Popen(
        [sys.executable, "-m", "waypost", "pipeline", job, *source, *where],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def count_files(directory: Path) -> int:
    """Count files, those of unfinished writes included."""
    return sum(len(files) for _, _, files in os.walk(directory))


def as_read(lake: Lake) -> Read:
    """Return what a reader of the current version of `messages` must see."""
    seq = F.col("seq")
    rows = lake.read(messages.NAME, messages.SCHEMA).agg(
        F.count(seq), F.min(seq), F.max(seq), F.sum(seq)
    )
    return Read(*rows.collect()[0])


def content(lake: Lake) -> dict[str, list[str]]:
    schemas = {EVENTS_TABLE: EVENTS, **TABLES}
    return {
        name: sorted(str(row) for row in lake.read(name, schema).collect())
        for name, schema in schemas.items()
    }


@pytest.mark.slow
def test_jobs_killed_at_random_moments_neither_lose_nor_duplicate_events(
    spark: SparkSession, tmp_path: Path
) -> None:
    killed = KilledLake(spark, tmp_path, segments=1 + KILLS)
    killed.add_segment()
    killed.ingest()
    committed = [killed.build()]
    with (
        seeded() as rng,
        looping_reader(killed.path / EVENTS_TABLE, "seq", tmp_path / "events") as events,
        looping_reader(killed.path / messages.NAME, "seq", tmp_path / "messages") as built,
    ):
        for _ in range(KILLS):
            killed.add_segment()
            killed.kill("ingest", rng.randint(1, INGEST_FILES))
            killed.ingest()
            killed.kill("build", rng.randint(1, BUILD_FILES))
            committed.append(killed.build())
            built.wait_for_more()
    assert [read for read in events.all() if not holds_each_event_once(read)] == []
    assert [read for read, _ in groupby(built.all())] == committed
    undisturbed = open_lake(spark, str(tmp_path / "undisturbed"), create=True)
    ingest(undisturbed, parse_sources([str(killed.data)]))
    build(undisturbed)
    found = content(open_lake(spark, str(killed.path)))
    assert found == content(undisturbed)
    rows = {name: polars.read_delta(f"{killed.path}/{name}").height for name in found}
    assert rows == {name: len(of_table) for name, of_table in found.items()}


@pytest.mark.slow
def test_a_build_killed_while_it_merges_small_files_leaves_each_event_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    killed = KilledLake(spark, tmp_path, segments=Upkeep().small_files_max + 1)
    for _ in range(Upkeep().small_files_max + 1):
        killed.add_segment()
        before = killed.ingest()
    with (
        seeded() as rng,
        looping_reader(killed.path / EVENTS_TABLE, "seq", tmp_path / "reads") as reads,
    ):
        for _ in range(KILLS):
            killed.kill("build", rng.randint(1, MERGE_FILES), EVENTS_TABLE)
        killed.build()
    assert {read.rows for read in reads.all()} == {before.manifest.events}
    assert [read for read in reads.all() if not holds_each_event_once(read)] == []
    merged = open_lake(spark, str(killed.path)).manifest.tables[EVENTS_TABLE]
    assert len(merged) < Upkeep().small_files_max
