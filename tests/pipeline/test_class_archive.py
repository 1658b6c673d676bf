"""The class archive: made after a first job or by `pipeline warm`, used and ignored by Java.

Every command is a process of its own, with its own cache directory.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import eventually_blocking
from waypost.pipeline.spark.cache import archive_path, cache_directory
from waypost.pipeline.spark.java import require_java

pytestmark = pytest.mark.spark

PREPARING = b"preparing Java in the background"
SHOW_LOADED = "spark.driver.extraJavaOptions=-Xlog:class+load:file="


def waypost(cache: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command without the Java options of the tests."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "JAVA_TOOL_OPTIONS": ""}
    return subprocess.run(
        [sys.executable, "-m", "waypost", "pipeline", *arguments],
        env=environment,
        capture_output=True,
        check=False,
    )


def shared_classes(cache: Path, lake: Path, log: Path) -> int:
    """Start a job; returns how many classes of Spark came from an archive."""
    done = waypost(cache, "build", "--lake", str(lake), "--conf", f"{SHOW_LOADED}{log}")
    assert b"no lake at" in done.stderr
    assert done.stdout == b""
    loaded = log.read_text().splitlines()
    return sum("org.apache.spark" in line and "shared objects file" in line for line in loaded)


def archive_in(cache: Path) -> Path:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    directory = cache_directory(environment)
    assert directory is not None
    return archive_path(directory, require_java(environment), environment)


@pytest.mark.slow
def test_an_archive_made_by_warm_is_private_and_used_and_a_broken_one_ignored(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "a cache"
    made = waypost(cache, "warm")
    assert made.returncode == 0, made.stderr.decode()
    archive = archive_in(cache)
    assert str(archive) in made.stdout.decode()
    assert archive.stat().st_mode & 0o077 == 0
    assert [one.suffix for one in sorted(archive.parent.iterdir())] == [".jsa", ".lock", ".size"]
    assert shared_classes(cache, tmp_path / "none", tmp_path / "used.log") > 1000
    size = archive.stat().st_size
    os.truncate(archive, size - 4096)  # Java would not survive it
    assert shared_classes(cache, tmp_path / "none", tmp_path / "short.log") == 0
    os.truncate(archive, 0)
    os.truncate(archive, size)
    assert shared_classes(cache, tmp_path / "none", tmp_path / "empty.log") == 0


def test_the_first_job_starts_making_the_archive_in_the_background(tmp_path: Path) -> None:
    cache, trace = tmp_path / "cache", tmp_path / "mails.txt"
    trace.write_text("1 2 1000000\n")
    job = ("import-trace", str(trace), "--lake", str(tmp_path / "lake"))
    assert PREPARING in waypost(cache, *job).stderr
    lock = archive_in(cache).with_suffix(".lock")
    eventually_blocking(
        lambda: lock.exists() and lock.read_text().strip().isdigit(),
        "the background job to begin",
        timeout_s=300,  # it has the lowest priority
    )
    os.killpg(int(lock.read_text()), signal.SIGKILL)
    again = (*job, "--relay", "again")
    assert PREPARING not in waypost(cache, *again).stderr  # one attempt a day


def test_a_cache_directory_that_others_can_access_is_not_used(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    directory = cache_directory(environment)
    assert directory == tmp_path / "waypost"
    assert directory.stat().st_mode & 0o777 == 0o700
    directory.chmod(0o750)
    assert cache_directory(environment) is None
    directory.rmdir()
    directory.symlink_to(tmp_path)
    assert cache_directory(environment) is None
    assert cache_directory({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "waypost"
    assert cache_directory({}) is None
