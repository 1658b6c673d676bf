"""Files on this machine: paths from Spark's addresses, private files, and regular ones only.

Standard library only: executors import this before anything is unpacked there.
"""

import contextlib
import errno
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from waypost.files import UnsuitableFile, open_regular
from waypost.pipeline.errors import JournalUnusable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE_MAX_BYTES = 64 * 1024 * 1024
"""Longer lines of a journal are skipped: no relay writes them, and a reader holds a whole line."""

PATTERN_CHARACTERS = re.compile(r"[*?\[\]{}\\\x00-\x1f]")
"""With one of these, Spark reads other directories than the one of that name, or none."""

LOCAL_PATHS = "spark.waypost.localPaths"
"""Spark setting: whether a path without a scheme means the same file to Spark and to Python."""

_masking = threading.Lock()
_masks: list[int] = []
"""The masks that the blocks of `private_files` found."""


class NotRegular(JournalUnusable):
    """A segment that is a link, a pipe or a device: what it leads to is not read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not a regular file: copy the segment itself into the journal")


def local_path(given: str) -> str:
    """Return the path that a path or a `file:` address stands for."""
    return given.removeprefix("file://").removeprefix("file:")


def sees_path(spark: "SparkSession", given: str) -> bool:
    """Return whether this process finds the file or directory that Spark means by `given`.

    False if that is not known, as in a session that the user has started.
    """
    has_scheme = ":" in given and not given.startswith("file:")
    return not has_scheme and spark.conf.get(LOCAL_PATHS, "") == "true"


def make_directory(path: Path) -> None:
    """Create a directory for its owner only, with its parents, unless it exists."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def create_file(path: Path) -> BinaryIO:
    """Create a file for its owner only, or empty an existing one. Raises `OSError`."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """During the block, let this process and those it starts create files for their owner only.

    The mask is one for all threads: the first block sets it, the last one that ends restores it.
    """
    with _masking:
        _masks.append(os.umask(0o077))
    try:
        yield
    finally:
        with _masking:
            before = _masks.pop()
            if not _masks:
                os.umask(before)


def open_segment(path: str) -> BinaryIO:
    """Open a segment for reading. Raises `NotRegular` for a link, a pipe or a device."""
    try:
        return open(open_regular(path, follow_links=False), "rb")
    except UnsuitableFile:
        raise NotRegular(path) from None
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENXIO):
            raise NotRegular(path) from None
        raise


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` to `path`: readers see the old file or the new one. Raises `OSError`."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with create_file(unfinished) as file:
            file.write(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
