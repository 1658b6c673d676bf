"""Files that others may have prepared: opened without waiting, bounded, private where they must be.

Rule 1  Opening never waits: a pipe or a device is rejected, not read.
Rule 2  A file is read as a whole or rejected; it is never cut at a limit.
Rule 3  A secret is read only from a file that no other user can read or write.

Every layer may use this module, so it imports the standard library only.

OSError
└── UnsuitableFile      not a regular file, too large, or a link that leads nowhere
    └── ExposedFile     other users can read or write it
"""

import errno
import os
import stat

TRY_AGAIN = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of opening a file that say nothing about the file: the process has no room for it now."""

SECRET_FILE_MAX_BYTES = 16_384

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class UnsuitableFile(OSError):
    """A file is not a regular file, too large, or a link that leads nowhere."""

    def __str__(self) -> str:
        return self.strerror or ""


class ExposedFile(UnsuitableFile):
    """Other users can read or write a file that must be private."""


def is_transient(problem: Exception) -> bool:
    """Return whether opening a file failed for a reason that has nothing to do with the file."""
    return isinstance(problem, OSError) and problem.errno in TRY_AGAIN


def open_regular(path: str | os.PathLike[str], *, follow_links: bool = True) -> int:
    """Return a descriptor of a regular file, open for reading.

    Raises `UnsuitableFile`, or another `OSError`. Without `follow_links`, a link is an error.
    """
    try:
        descriptor = os.open(path, _FLAGS if follow_links else _FLAGS | os.O_NOFOLLOW)
    except FileNotFoundError:
        if os.path.islink(path):
            text = "a link to a file that does not exist"
            raise UnsuitableFile(errno.ENOENT, text, os.fspath(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsuitableFile(errno.EINVAL, "not a regular file", os.fspath(path))
    return descriptor


def read_file(path: str | os.PathLike[str], max_bytes: int, *, follow_links: bool = True) -> bytes:
    """Return the content of a regular file of at most `max_bytes`.

    Raises as `open_regular` does.
    """
    descriptor = open_regular(path, follow_links=follow_links)
    try:
        return _read_all(descriptor, path, max_bytes)
    finally:
        os.close(descriptor)


def read_secret(
    path: str | os.PathLike[str],
    max_bytes: int = SECRET_FILE_MAX_BYTES,
    *,
    group_of_root: bool = False,
) -> bytes:
    """Return the content of a file that only its owner can access.

    Raises `ExposedFile`, with the command that mends it, `UnsuitableFile`, or another `OSError`.
    With `group_of_root`, the group may read a file that belongs to root, as is usual for TLS keys.
    """
    descriptor = open_regular(path)
    try:
        found = os.fstat(descriptor)
        allowed = 0o740 if group_of_root and found.st_uid == 0 else 0o700
        if stat.S_IMODE(found.st_mode) & 0o777 & ~allowed:
            text = f"accessible to other users; if it has not leaked, run: chmod 600 {path}"
            raise ExposedFile(errno.EPERM, text, os.fspath(path))
        return _read_all(descriptor, path, max_bytes)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, path: str | os.PathLike[str], max_bytes: int) -> bytes:
    if os.fstat(descriptor).st_size > max_bytes:
        raise _too_large(path, max_bytes)
    content = bytearray()
    while len(content) <= max_bytes:
        piece = os.read(descriptor, max_bytes + 1 - len(content))
        if not piece:
            return bytes(content)
        content += piece
    raise _too_large(path, max_bytes)


def _too_large(path: str | os.PathLike[str], max_bytes: int) -> UnsuitableFile:
    return UnsuitableFile(errno.EFBIG, f"larger than {max_bytes:,} bytes", os.fspath(path))
