"""Files that are done with, kept to be written again.

Making a file and deleting it again and again is what a busy mailbox does, and what some file
systems are worst at: ext4 will not use a deleted inode again for minutes, and searches past all
of them whenever a file is made. A file that is kept costs a rename instead.

Rule 1  A spare file is only ever seen under its new name once its new content is complete.
Rule 2  A file that another process dropped in is not kept: it may still be in use there.
Rule 3  Only small files are kept, and never more than `_SPARES_MAX`: together at most 64 MiB.
Rule 4  After the machine went down, a file that was written again may have its new name and still
        its old content, at the right length. `same_boot` tells whether that can be.
"""

import errno
import os
import stat
from pathlib import Path

from waypost.relay.data_dir import replace_file

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_SPARES_MAX = 16_384
_SIZE_MAX_BYTES = 4096


class FilePool:
    """Files in one directory, ready to be filled and renamed to where they belong."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._boot = directory / "boot"
        self._ready: list[tuple[str, int]] = []
        self._made = 0

    def adopt(self) -> None:
        """Take over what an earlier run left."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        with os.scandir(self._directory) as entries:
            self._ready = [
                (entry.path, entry.stat().st_size)
                for entry in entries
                if entry.name.isdigit() and _is_ours(entry.stat(follow_symlinks=False))
            ]
        numbers = [int(os.path.basename(path)) for path, _ in self._ready]
        self._made = max(numbers, default=-1) + 1

    def same_boot(self) -> bool:
        """Whether the machine has been up since `note_boot`; False where nobody can tell."""
        try:
            return self._boot.read_bytes() == _BOOT_ID.read_bytes()
        except OSError:
            return False

    def note_boot(self) -> None:
        """Every file is now known to be as it was written, while the machine is up."""
        try:
            if not self.same_boot():
                replace_file(self._boot, _BOOT_ID.read_bytes())
        except OSError:
            pass  # then files are looked into at the next start too

    def fill(self, target: str, content: bytes) -> bool:
        """Let a file with `content` appear at `target`, if a spare is left to hold it."""
        if not self._ready or len(content) > _SIZE_MAX_BYTES:
            return False
        path, size = self._ready.pop()
        try:
            descriptor = os.open(path, os.O_WRONLY)
        except FileNotFoundError:  # someone tidied up
            return False
        try:
            if os.pwrite(descriptor, content, 0) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            if size > len(content):
                os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)
        os.rename(path, target)
        return True

    def give(self, path: str) -> None:
        """The file at `path` is done with. Raises `FileNotFoundError` if it is not there."""
        found = os.stat(path, follow_symlinks=False)
        if len(self._ready) >= _SPARES_MAX or not _is_ours(found):
            os.unlink(path)
            return
        spare = f"{self._directory}/{self._made}"
        self._made += 1
        os.rename(path, spare)
        self._ready.append((spare, found.st_size))


def _is_ours(found: os.stat_result) -> bool:
    """Whether a file is small, and nobody else can have it under another name or look into it."""
    return (
        stat.S_ISREG(found.st_mode)
        and stat.S_IMODE(found.st_mode) == 0o600
        and found.st_uid == os.geteuid()
        and found.st_nlink == 1
        and found.st_size <= _SIZE_MAX_BYTES
    )
