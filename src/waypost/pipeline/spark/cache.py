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

from waypost.pipeline.files import make_directory
from waypost.pipeline.spark.java import Java


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


def archive_path(java: Java, environment: Mapping[str, str]) -> Path | None:
    """Return where the class archive for this Java and this Spark belongs, if anywhere."""
    directory = cache_directory(environment)
    if directory is None:
        return None
    return directory / f"spark-{spark_build(java, environment)}.jsa"


def spark_build(java: Java, environment: Mapping[str, str]) -> str:
    """Return a short text that differs between builds of Java, of PySpark, and their places."""
    home = Path(environment.get("SPARK_HOME") or pyspark.__path__[0])
    try:
        installed_ns = (home / "jars").stat().st_mtime_ns
    except OSError:
        installed_ns = 0
    facts = (java.path.resolve(), java.build, pyspark.__version__, home, installed_ns)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
