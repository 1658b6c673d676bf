"""The class archive: the classes of Spark as Java has parsed and checked them, mapped at its start.

Rule 1  An archive appears under its name when it is complete, and its size is kept beside it: Java
        does not survive one that is cut short.
Rule 2  It is never needed. Java ignores one that does not fit its version or its classes.
Rule 3  One process at a time makes an archive. After a failure, none tries again on its own for a
        day.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark import SparkContext

from waypost.pipeline.errors import SparkUnavailable
from waypost.pipeline.files import replace_file
from waypost.pipeline.spark.cache import archive_path, cache_directory, is_complete, size_path
from waypost.pipeline.spark.java import decides_on_archive, require_java
from waypost.pipeline.spark.session import given_java_options

_ARCHIVES_MAX = 3
_RETRY_AFTER_S = 24 * 3600
_FREE_BYTES_MIN = 2 * 1024 * 1024 * 1024
"""An archive has about 200 MB. A disk with less room than this has better uses for it."""
_EXIT_TIMEOUT_S = 300


@contextlib.contextmanager
def archive_classes(archive: Path) -> Iterator[str]:
    """Yield the Java options of a session in the block; then its JVM exits and writes `archive`.

    Raises `SparkUnavailable` if it wrote none, or if another process is just making it.
    """
    with _only_one(archive):
        unfinished = archive.with_name(f".{archive.name}.{os.getpid()}")
        try:
            yield f'"-XX:ArchiveClassesAtExit={unfinished}" -Xlog:cds=off -Xlog:cds+dynamic=off'
            _end_java()
            unfinished.chmod(0o600)
            replace_file(size_path(archive), str(unfinished.stat().st_size).encode())
            unfinished.replace(archive)
        except FileNotFoundError:
            raise SparkUnavailable(
                "Java wrote no class archive: it may have been built without shared classes"
            ) from None
        finally:
            unfinished.unlink(missing_ok=True)
    _delete_old(archive)


def is_archive_missing(conf: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Return whether an archive should be made for sessions like the one that has just ended."""
    if decides_on_archive(given_java_options(conf, environment)):
        return False
    cache = cache_directory(environment)
    if cache is None:
        return False
    archive = archive_path(cache, require_java(environment), environment)
    if is_complete(archive):
        return False
    with contextlib.suppress(OSError):
        if time.time() - _lock_path(archive).stat().st_mtime < _RETRY_AFTER_S:
            return False
    return shutil.disk_usage(archive.parent).free >= _FREE_BYTES_MIN


def start_archiving() -> None:
    """Start `waypost pipeline warm` with low priority; it outlives this process."""
    nice = shutil.which("nice")
    subprocess.Popen(
        [
            *([nice, "-n", "19"] if nice else ()),
            sys.executable,
            "-m",
            "waypost",
            "pipeline",
            "warm",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@contextlib.contextmanager
def _only_one(archive: Path) -> Iterator[None]:
    with open(os.open(_lock_path(archive), os.O_RDWR | os.O_CREAT, 0o600), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SparkUnavailable("another process is just making the class archive") from None
        lock.write(f"{os.getpid()}\n".ljust(20))
        lock.flush()  # also the time of the last attempt
        yield


def _lock_path(archive: Path) -> Path:
    return archive.with_suffix(".lock")


def _end_java() -> None:
    """End the JVM of this process after its session has ended."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM exits with its input
    gateway.proc.wait(_EXIT_TIMEOUT_S)


def _delete_old(archive: Path) -> None:
    """Delete archives of earlier versions, so that few remain."""
    by_age = sorted(archive.parent.glob("spark-*.jsa"), key=lambda one: -one.stat().st_mtime)
    for one in by_age[_ARCHIVES_MAX:]:
        one.unlink(missing_ok=True)
        _lock_path(one).unlink(missing_ok=True)
        size_path(one).unlink(missing_ok=True)
