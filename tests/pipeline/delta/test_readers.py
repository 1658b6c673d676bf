"""A reader in another process sees whole versions only, whatever happens to the jobs."""

import os
import subprocess
import sys
from pathlib import Path

import polars
import pytest

from tests.eventually import eventually_blocking
from tests.faults.seeds import seeded
from tests.pipeline.delta.looping_reader import PATIENCE_S, Read, looping_reader
from tests.pipeline.delta.small_lake import FILES, SmallLake, numbers

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
