"""A pool of unused files, to be filled and renamed instead of creating new ones.

A busy mailbox creates and deletes files all the time, which some file systems do badly: ext4 does
not reuse a deleted inode for minutes, and skips all of them whenever a file is created. A pooled
file costs a rename instead.

Rule 1  A pooled file gets its new name only once its new content is complete.
Rule 2  A file that another process dropped in is not pooled: that process may still use it.
Rule 3  Only small files are pooled, at most `_POOLED_FILES_MAX`: together at most 64 MiB.
Rule 4  After a crash of the machine, a reused file may have its new name and its old content, at
        the right length. `same_boot` returns False if that is possible.
"""

import errno
import os
import stat
from pathlib import Path

from waypost.relay.data_dir import replace_file

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_POOLED_FILES_MAX = 16_384
_SIZE_MAX_BYTES = 4096


class FilePool:
    """The unused files in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._boot = directory / "boot"
        self._ready: list[tuple[str, int]] = []
        self._next_number = 0

    def adopt(self) -> None:
        """Take over the files of an earlier run."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        with os.scandir(self._directory) as entries:
            self._ready = [
                (entry.path, entry.stat().st_size)
                for entry in entries
                if entry.name.isdigit() and _is_poolable(entry.stat(follow_symlinks=False))
            ]
        numbers = [int(os.path.basename(path)) for path, _ in self._ready]
        self._next_number = max(numbers, default=-1) + 1

    def same_boot(self) -> bool:
        """Return whether the machine has been up since `record_boot`; False if unknown."""
        try:
            return self._boot.read_bytes() == _BOOT_ID.read_bytes()
        except OSError:
            return False

    def record_boot(self) -> None:
        """Record that every mailbox file has its content, as long as the machine is up."""
        try:
            if not self.same_boot():
                replace_file(self._boot, _BOOT_ID.read_bytes())
        except OSError:
            pass  # the next start checks the content of every file again

    def fill(self, target: str, content: bytes) -> bool:
        """Write `content` to a pooled file and rename it to `target`; return False if none fits."""
        if not self._ready or len(content) > _SIZE_MAX_BYTES:
            return False
        path, size = self._ready[-1]
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:  # deleted by another process
            self._ready.pop()
            return False
        self._ready.pop()
        try:
            if os.pwrite(descriptor, content, 0) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            if size > len(content):
                os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)
        os.rename(path, target)
        return True

    def recycle(self, path: str) -> None:
        """Pool the file at `path`, or delete it; raise `FileNotFoundError` if it is missing."""
        found = os.stat(path, follow_symlinks=False)
        if len(self._ready) >= _POOLED_FILES_MAX or not _is_poolable(found):
            os.unlink(path)
            return
        pooled = f"{self._directory}/{self._next_number}"
        self._next_number += 1
        os.rename(path, pooled)
        self._ready.append((pooled, found.st_size))


def _is_poolable(found: os.stat_result) -> bool:
    """Return whether a file is small, and no other user or link can reach it."""
    return (
        stat.S_ISREG(found.st_mode)
        and stat.S_IMODE(found.st_mode) == 0o600
        and found.st_uid == os.geteuid()
        and found.st_nlink == 1
        and found.st_size <= _SIZE_MAX_BYTES
    )
