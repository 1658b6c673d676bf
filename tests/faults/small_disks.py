"""Small disks: a real one where mounting is allowed, and a simulated one elsewhere."""

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SIZE = 24 * 1024 * 1024
LEFT_AFTER_BALLAST = 3 * 1024 * 1024


class RealDisk:
    """A tmpfs on which another file takes up space until `free`."""

    kind = "tmpfs"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._filler = directory / "someone-elses-file"

    def fill(self, *, leave: int = 0) -> None:
        """Fill the disk up to `leave` bytes."""
        free = shutil.disk_usage(self.directory).free - leave
        with self._filler.open("ab") as file:
            while free > 0:
                try:
                    free -= os.write(file.fileno(), bytes(min(free, 65536)))
                except OSError:
                    return

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


class PretendedDisk:
    """Makes `os.pwrite` and `os.posix_fallocate` fail as on a full disk.

    Only the journal is written with them, so the mailboxes and the index always have room.
    """

    kind = "pretended"

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self._left = SIZE
        self._write, self._allocate = os.pwrite, os.posix_fallocate
        monkeypatch.setattr(os, "pwrite", self._pwrite)
        monkeypatch.setattr(os, "posix_fallocate", self._posix_fallocate)
        self._ballast = directory / "data" / "journal" / "ballast"

    def fill(self, *, leave: int = 0) -> None:
        self._left = leave + self._reserved()

    def free(self) -> None:
        self._left = SIZE

    def _room(self) -> int:
        return self._left - self._reserved()

    def _reserved(self) -> int:
        return self._ballast.stat().st_size if self._ballast.exists() else 0

    def _pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        room = self._room()
        if room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = self._write(descriptor, memoryview(data)[:room], offset)
        self._left -= done
        return done

    def _posix_fallocate(self, descriptor: int, offset: int, length: int) -> None:
        if self._left < length:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._allocate(descriptor, offset, length)


Disk = RealDisk | PretendedDisk


def mount_tmpfs(directory: Path, *more: str) -> bool:
    """Mount a small file system at `directory`, with `more` options; return whether it worked."""
    if shutil.which("mount") is None:
        return False
    options = ",".join((f"size={SIZE}", "mode=700", *more))
    command = ["mount", "-t", "tmpfs", "-o", options, "waypost-test", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(directory: Path) -> None:
    subprocess.run(["umount", "--lazy", str(directory)], check=True)
