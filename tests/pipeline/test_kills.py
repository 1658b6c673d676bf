"""`ingest` and `build`, killed at random moments and run again, give the same lake."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import open_lake
from waypost.pipeline.tables.registry import TABLES
from waypost.simulate import SimulationOptions, simulate

KILLS = int(os.environ.get("WAYPOST_KILLS", "1"))
"""Kills of each job; each takes about as long as the job."""


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kills") / "traffic"
    simulate(SimulationOptions(messages=1500, out=out, agents=40, seed=11))
    return out


def command(job: str, journal: Path, lake: Path) -> list[str]:
    source = ["--journal", str(journal)] if job == "ingest" else []
    where = ["--lake", str(lake), "--master", "local[2]"]
    return [sys.executable, "-m", "waypost", "pipeline", job, *source, *where]


def finish(job: str, journal: Path, lake: Path) -> float:
    """Run a job to its end; returns the seconds it took."""
    begun = time.monotonic()
    done = subprocess.run(command(job, journal, lake), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return time.monotonic() - begun


def kill_once(job: str, journal: Path, lake: Path, after_s: float) -> None:
    process = subprocess.Popen(
        command(job, journal, lake),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(timeout=after_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # Python and the JVM at once
        process.wait()


def content(spark: SparkSession, lake: Path) -> dict[str, list[str]]:
    opened = open_lake(spark, str(lake))
    schemas = {"events": EVENTS, **TABLES}
    return {
        name: sorted(str(row) for row in opened.read(name, schema).collect())
        for name, schema in schemas.items()
    }


def test_jobs_killed_at_random_moments_neither_lose_nor_duplicate_events(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    undisturbed, lake = tmp_path / "undisturbed", tmp_path / "lake"
    moments = random.Random(7)
    for job in ("ingest", "build"):
        took_s = finish(job, journal, undisturbed)
        for _ in range(KILLS):
            # The first half is the start of Spark; kills matter while the job writes.
            kill_once(job, journal, lake, took_s * moments.uniform(0.4, 1.0))
        finish(job, journal, lake)
    assert content(spark, lake) == content(spark, undisturbed)
