"""Estimates how many events a job will read, from the sizes of files, before Spark starts.

An estimate serves to choose the compiler of Java, which is not possible later.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from waypost.pipeline.files import local_path
from waypost.pipeline.journal.sources import parse_sources

_JOURNAL_EVENT_BYTES = 300
_LAKE_EVENT_BYTES = 20
_TRACE_EVENT_BYTES = 8  # a line of a trace becomes about three events
_FILES_MAX = 100_000


def estimate_events(
    journals: Iterable[str], lake: str | None, trace: str | None = None
) -> int | None:
    """Return about how many events these hold; None if that takes too long to find out.

    Raises `JournalUnusable` if `journals` name no journals.
    """
    paths = [(source.path, _JOURNAL_EVENT_BYTES) for source in parse_sources(list(journals))]
    if lake is not None:
        paths.append((f"{lake.rstrip('/')}/events", _LAKE_EVENT_BYTES))
    if trace is not None:
        paths.append((trace, _TRACE_EVENT_BYTES))
    sizes = [_bytes_below(local_path(path)) for path, _ in paths]
    if any(size is None for size in sizes):
        return None
    return sum((size or 0) // each for size, (_, each) in zip(sizes, paths, strict=True))


def _bytes_below(path: str) -> int | None:
    """Return the bytes of a file, or of all files below a directory; 0 if there is none.

    None is an address of another machine, or too many files to look at.
    """
    if "://" in path:
        return None
    total = os.path.getsize(path) if os.path.isfile(path) else 0
    for number, file in enumerate(_files_below(Path(path))):
        if number >= _FILES_MAX:
            return None
        try:
            total += file.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # a relay has sealed or deleted it
    return total


def _files_below(root: Path) -> "Iterator[os.DirEntry[str]]":
    directories = [str(root)]
    while directories:
        try:
            with os.scandir(directories.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
                    else:
                        yield entry
        except OSError:
            continue
