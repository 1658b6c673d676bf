"""`ingest` and `build`, killed at random moments and run again, give the same lake and logs."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars
import pytest
from pyspark.sql import SparkSession

from tests.eventually import eventually_blocking
from tests.faults.seeds import seeded
from tests.pipeline.conftest import QUICK
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.tables.build import build
from waypost.pipeline.tables.registry import TABLES
from waypost.simulate import SimulationOptions, simulate

KILLS = int(os.environ.get("WAYPOST_KILLS", "1"))
"""Kills of each job; each takes about as long as the job."""
ENDS_WITHIN_S = 300.0


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kills") / "traffic"
    simulate(SimulationOptions(messages=600, out=out, agents=40, seed=11))
    return out


def run_job(job: str, lake: Lake, journal: Path) -> None:
    """Run a job to its end in this process."""
    if job == "ingest":
        ingest(lake, parse_sources([str(journal)]))
    else:
        build(lake)


def kill_job(job: str, lake: Path, journal: Path, files_more: int) -> None:
    """Start a job in another process; kill it once it has written `files_more` files."""
    wanted = count_files(lake) + files_more
    source = ["--journal", str(journal)] if job == "ingest" else []
    conf = [word for name, value in QUICK.items() for word in ("--conf", f"{name}={value}")]
    where = ["--lake", str(lake), "--master", "local[2]", *conf]
    process = subprocess.Popen(
        [sys.executable, "-m", "waypost", "pipeline", job, *source, *where],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        eventually_blocking(
            lambda: count_files(lake) >= wanted or process.poll() is not None,
            f"{wanted} files of {job}",
            timeout_s=ENDS_WITHIN_S,
        )
        assert process.poll() in (None, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # Python and the JVM at once
        process.wait()


def count_files(directory: Path) -> int:
    """Count files, those of unfinished writes included."""
    return sum(len(files) for _, _, files in os.walk(directory))


def content(spark: SparkSession, lake: Path) -> dict[str, list[str]]:
    opened = open_lake(spark, str(lake))
    schemas = {"events": EVENTS, **TABLES}
    return {
        name: sorted(str(row) for row in opened.read(name, schema).collect())
        for name, schema in schemas.items()
    }


@pytest.mark.slow
def test_jobs_killed_at_random_moments_neither_lose_nor_duplicate_events(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    undisturbed = open_lake(spark, str(tmp_path / "undisturbed"), create=True)
    lake = tmp_path / "lake"
    with seeded() as rng:
        for job in ("ingest", "build"):
            before = count_files(tmp_path / "undisturbed")
            run_job(job, undisturbed, journal)
            written = count_files(tmp_path / "undisturbed") - before
            for _ in range(KILLS):
                kill_job(job, lake, journal, rng.randint(1, written))
            # An ingest that was killed before its commit has left no lake: the next one creates it.
            run_job(job, open_lake(spark, str(lake), create=job == "ingest"), journal)
        found = content(spark, lake)
        assert found == content(spark, tmp_path / "undisturbed")
        rows = {name: polars.read_delta(f"{lake}/{name}").height for name in found}
        assert rows == {name: len(of_table) for name, of_table in found.items()}
