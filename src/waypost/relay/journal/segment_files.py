"""The files of the segment being written, and spare ones for the next, opened ahead of time.

Rule 1  A process that has run out of descriptors can still write and sync, begin a segment, and
        store the first large payload of a segment: the descriptors for that are open already.
Rule 2  A spare file is empty. It is renamed when it is needed, and replaced when that is possible.
"""

import os
from pathlib import Path

from waypost.files import is_transient
from waypost.relay.data_dir import sync_file
from waypost.relay.journal.segments import bodies_path, segment_path

SPARE_SEGMENT = "next-segment"
SPARE_BODIES = "next-bodies"

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class NoDescriptor(OSError):
    """A file cannot be opened now, because the process has no descriptor or no memory for it."""


class SegmentFiles:
    """Open files of one segment: `lines` and `bodies` are descriptors, -1 if not open."""

    def __init__(self, directory: Path) -> None:
        self.segment = -1
        self.lines = -1
        self.bodies = -1
        self._path = directory
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._spares: dict[str, int] = {}
        self.replenish()

    def open(self, segment: int) -> None:
        """Open the files of `segment`; close those of another. Raises `OSError`."""
        self.close(sync=True)
        path = segment_path(self._path, segment, sealed=False)
        is_new = not path.exists()
        self.lines = self._take(SPARE_SEGMENT, path) if is_new else _open(path)
        self.segment = segment
        if is_new:
            os.fsync(self._directory)
        bodies = bodies_path(self._path, segment)
        if bodies.exists():
            self.bodies = _open(bodies)

    def open_bodies(self) -> None:
        """Open the segment's file of large payloads. Raises `OSError`."""
        if self.bodies < 0:
            path = bodies_path(self._path, self.segment)
            self.bodies = _open(path) if path.exists() else self._take(SPARE_BODIES, path)
            os.fsync(self._directory)

    def seal(self) -> None:
        """Sync and close the files, and rename the segment. Raises `OSError`."""
        segment = self.segment
        self.close(sync=True)
        os.rename(
            segment_path(self._path, segment, sealed=False),
            segment_path(self._path, segment, sealed=True),
        )
        os.fsync(self._directory)

    def close(self, *, sync: bool) -> None:
        """Close the files of the segment, also if one cannot be synced. Raises `OSError`."""
        descriptors = [one for one in (self.bodies, self.lines) if one >= 0]
        self.segment = self.bodies = self.lines = -1
        try:
            for descriptor in descriptors if sync else ():
                sync_file(descriptor)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def replenish(self) -> None:
        """Open missing spares; one that cannot be opened now is left for the next call."""
        for name in (SPARE_SEGMENT, SPARE_BODIES):
            if name not in self._spares:
                try:
                    self._spares[name] = _open(self._path / name, os.O_TRUNC)
                except OSError:
                    return

    def close_spares(self) -> None:
        """Close and delete the spares, and close the directory."""
        for name, descriptor in self._spares.items():
            os.close(descriptor)
            try:
                os.unlink(self._path / name)
            except OSError:
                pass  # emptied when it is opened again
        self._spares.clear()
        os.close(self._directory)

    def _take(self, spare: str, path: Path) -> int:
        """Return a descriptor of a new file: the spare with the name `path`, if there is one."""
        descriptor = self._spares.get(spare, -1)
        if descriptor < 0:
            return _open(path)
        try:
            os.rename(self._path / spare, path)
        except FileNotFoundError:  # deleted by another process
            os.close(self._spares.pop(spare))
            return _open(path)
        del self._spares[spare]
        return descriptor


def _open(path: Path, flags: int = 0) -> int:
    try:
        return os.open(path, _FLAGS | flags, 0o600)
    except OSError as problem:
        if is_transient(problem):
            raise NoDescriptor(problem.errno, problem.strerror, str(path)) from None
        raise
