"""Files on this machine: paths from Spark's addresses, and writes that are never half-done.

Standard library only: executors import this before anything is unpacked there.
"""

import os
from pathlib import Path


def local_path(given: str) -> str:
    """Return the path that a path or a `file:` address stands for."""
    return given.removeprefix("file://").removeprefix("file:")


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` to `path`: readers see the old file or the new one. Raises `OSError`."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
