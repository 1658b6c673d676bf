"""A reader in another process sees whole versions only, whatever happens to the jobs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars
import pytest

from tests.eventually import eventually_blocking
from tests.faults.seeds import seeded
from tests.pipeline.delta.small_lake import FILES, SmallLake, numbers

pytestmark = pytest.mark.process

KILLS = 4 * int(os.environ.get("WAYPOST_KILLS", "1"))
PATIENCE_S = 120.0


def start(module: str, argument: Path, **options: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", f"tests.pipeline.delta.{module}", str(argument)]
    return subprocess.Popen(command, text=True, **options)  # type: ignore[call-overload, no-any-return]


@contextmanager
def looping_reader(table: Path, output: Path) -> Iterator[None]:
    """Let another process read `table` during the block; its lines go to `output`."""
    with output.open("w") as lines:
        reader = start("looping_reader", table, stdin=subprocess.PIPE, stdout=lines)
        try:
            eventually_blocking(
                lambda: output.read_text().count("\n") > 2, "reads", timeout_s=PATIENCE_S
            )
            yield
            reader.communicate(timeout=PATIENCE_S)  # ends its input
            assert reader.returncode == 0
        finally:
            reader.kill()
            reader.wait()


def kill_after(lake: Path, versions: int) -> None:
    """Start a job that commits and publishes without end; kill it some versions later."""
    wanted = SmallLake(lake).manifest.version + versions
    job = start("small_lake", lake)
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


def is_whole(read: dict[str, int]) -> bool:
    """Return whether the rows are those of one version."""
    return read["least"] == read["most"] and read["rows"] == FILES * read["most"]


@pytest.mark.slow
def test_a_reader_sees_whole_versions_while_publishing_is_killed(tmp_path: Path) -> None:
    lake, output = tmp_path / "lake", tmp_path / "reads"
    first = SmallLake(lake)
    first.commit(*(first.write(numbers(1)) for _ in range(FILES)))
    first.publish()
    with seeded() as rng, looping_reader(lake / "t", output):
        for _ in range(KILLS):
            kill_after(lake, rng.randint(1, 8))
    reads = [json.loads(line) for line in output.read_text().splitlines()]
    assert [one for one in reads if "error" in one] == []
    assert [one for one in reads if not is_whole(one)] == []
    versions = [one["most"] for one in reads]
    assert versions == sorted(versions)
    assert len(set(versions)) > KILLS / 2
    after = SmallLake(lake)
    assert after.publish() == []  # what the last kill left out
    assert set(polars.read_delta(str(lake / "t"))["n"]) == {after.manifest.version}
