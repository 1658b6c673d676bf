"""The user's cache directory: what makes Spark start sooner, and can be deleted at any time.

Rule 1  Java runs the classes it finds there, and a token is kept there. So a directory that other
        users can access is not used, nor is one that belongs to another user.
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pyspark

from waypost.files import read_file
from waypost.pipeline.errors import SparkUnavailable
from waypost.pipeline.files import make_directory
from waypost.pipeline.spark.java import Java

_SIZE_MAX_BYTES = 32


def cache_directory(environment: Mapping[str, str]) -> Path | None:
    """Return `$XDG_CACHE_HOME/waypost` or `~/.cache/waypost`, created; None if it is not ours."""
    home = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):  # as the XDG specification demands
        home = os.path.join(environment.get("HOME", ""), ".cache")
    directory = Path(home, "waypost")
    if not directory.is_absolute():
        return None
    try:
        make_directory(directory)
        found = directory.lstat()
    except OSError:
        return None
    is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return directory if is_private and found.st_uid == os.geteuid() else None


def require_cache_directory(environment: Mapping[str, str]) -> Path:
    """Return the cache directory. Raises `SparkUnavailable` if there is none to use."""
    directory = cache_directory(environment)
    if directory is None:
        raise SparkUnavailable(
            "no private cache directory: ~/.cache/waypost must be yours, with mode 0700; or set"
            " XDG_CACHE_HOME"
        )
    return directory


def archive_path(directory: Path, java: Java, environment: Mapping[str, str]) -> Path:
    """Return where the class archive for this Java and this Spark belongs."""
    return directory / f"spark-{spark_build(java, environment)}.jsa"


def is_complete(archive: Path) -> bool:
    """Return whether a class archive has the size it was written with: a shorter one ends Java."""
    try:
        return archive.stat().st_size == int(read_file(size_path(archive), _SIZE_MAX_BYTES))
    except (OSError, ValueError):
        return False


def size_path(archive: Path) -> Path:
    """Return the file with the size of an archive."""
    return archive.with_suffix(".size")


def spark_build(java: Java, environment: Mapping[str, str]) -> str:
    """Return a short text that differs between builds of Java, of PySpark, and their places."""
    home = Path(environment.get("SPARK_HOME") or pyspark.__path__[0])
    try:
        installed_ns = (home / "jars").stat().st_mtime_ns
    except OSError:
        installed_ns = 0
    facts = (java.path.resolve(), java.build, pyspark.__version__, home, installed_ns)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
