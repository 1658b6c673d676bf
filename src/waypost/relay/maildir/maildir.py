"""Maildir directories: a copy of the journal's messages, one file per message.

Rule 1  A file appears complete: written without a name or in `tmp/`, then linked or renamed.
Rule 2  Files need no sync: recovery restores a missing or short one from the journal.
Rule 3  Directories have mode 0700, files 0600.
Rule 4  `tmp/` of each mailbox is a link into one directory, so that one watch sees the files of
        other processes, and never those of the relay itself.

Everything here runs after the events it follows are durable.
"""

import errno
import os
from datetime import datetime
from pathlib import Path

import msgspec

from waypost.files import read_file
from waypost.policy.bounds import mailbox_file_max_bytes
from waypost.relay.maildir.file_pool import FilePool
from waypost.wire.envelopes import Envelope

FOLDERS = ("new", "cur", "failed")
INCOMING = "incoming"
_NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})
"""Errors of file systems without unnamed temporary files."""
SPARES = "spares"
_PROBE = ".probe"
_HEAD_BYTES = 128
"""An envelope starts with its id, also inside a dead letter."""


class DeadLetterFile(msgspec.Struct, frozen=True):
    """The content of a dead letter's file in `failed/`."""

    envelope: Envelope
    reason: str
    failed_at: datetime


class DropInFile(msgspec.Struct):
    """The content of a drop-in; other fields are ignored."""

    sender: str
    payload: msgspec.Raw
    reply_to: str | None = None
    budget: dict[str, object] | None = None
    thread: str | None = None


class Maildir:
    """The mailbox directories below one root."""

    def __init__(self, root: Path) -> None:
        self._incoming = str(root.parent / INCOMING)
        self._pool = FilePool(root.parent / SPARES)
        self._root = str(root)
        self._unnamed_files = hasattr(os, "O_TMPFILE") and os.path.exists("/proc/self/fd")

    def open(self) -> bool:
        """Open the file pool; return whether files of the right length have the right content.

        If not, check their content, then call `mark_verified`.
        """
        self._pool.adopt()
        return self._pool.same_boot()

    def mark_verified(self) -> None:
        """Record that the content of every file was checked."""
        self._pool.record_boot()

    def path(self, hash_: str) -> Path:
        """Return the directory of one mailbox."""
        return Path(self._root, hash_)

    def ensure(self, hash_: str) -> None:
        """Create the missing folders of a mailbox: all of them, or none. Raises `OSError`."""
        base = f"{self._root}/{hash_}"
        folders = [f"{base}/{folder}" for folder in FOLDERS]
        created: list[str] = []
        try:
            for directory in (base, *folders, f"{self._incoming}/{hash_}"):
                if _make_directory(directory):
                    created.append(directory)  # noqa: PERF401 - known if the next one fails
            os.symlink(f"../../{INCOMING}/{hash_}", self._tmp(hash_))
        except FileExistsError:
            pass
        except OSError:
            for directory in reversed(created):
                _remove_directory(directory)
            raise

    def probe(self) -> None:
        """Raise `OSError` if no mailbox can be created."""
        self.ensure(_PROBE)
        self.remove_mailbox(_PROBE)

    def deliver(self, hash_: str, name: str, content: bytes, folder: str = "new") -> None:
        """Write a message to `folder`; it appears complete."""
        target = f"{self._root}/{hash_}/{folder}/{name}"
        if self._pool.fill(target, content) or (
            self._unnamed_files and self._link(target, content)
        ):
            return
        self._rename(hash_, name, content, folder)

    def _link(self, target: str, content: bytes) -> bool:
        """Write an unnamed file and link it; return False if that is not possible.

        This takes half the directory changes of a rename, leaves nothing behind in a crash, and
        is not seen in `tmp/`, which is watched for drop-ins.
        """
        try:
            descriptor = os.open(os.path.dirname(target), os.O_WRONLY | os.O_TMPFILE, 0o600)
        except OSError as problem:
            if problem.errno not in _NOT_SUPPORTED:
                raise
            self._unnamed_files = False
            return False
        try:
            _write(descriptor, content)
            source = f"/proc/self/fd/{descriptor}"
            # With a directory descriptor, Python uses linkat, which can follow the link in /proc.
            os.link(source, target, src_dir_fd=descriptor, follow_symlinks=True)
        except FileExistsError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _rename(self, hash_: str, name: str, content: bytes, folder: str) -> None:
        """Write a file in `tmp/` and rename it, replacing a file of that name."""
        base = f"{self._root}/{hash_}"
        unfinished = f"{base}/tmp/{name}"
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:  # left over from a crash during a write
            os.unlink(unfinished)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _write(descriptor, content)
        finally:
            os.close(descriptor)
        os.rename(unfinished, f"{base}/{folder}/{name}")

    def move(self, hash_: str, name: str, origin: str, target: str) -> None:
        """Move a message from one folder to another, if it exists."""
        base = f"{self._root}/{hash_}"
        try:
            os.rename(f"{base}/{origin}/{name}", f"{base}/{target}/{name}")
        except FileNotFoundError:
            pass

    def remove(self, hash_: str, name: str, *folders: str) -> None:
        """Remove a message from the first of `folders` that has it."""
        for folder in folders:
            try:
                self._pool.recycle(f"{self._root}/{hash_}/{folder}/{name}")
            except FileNotFoundError:
                continue
            return

    def discard(self, hash_: str, name: str) -> None:
        """Delete a drop-in from `new/`."""
        Path(self._root, hash_, "new", name).unlink(missing_ok=True)

    def remove_mailbox(self, hash_: str) -> None:
        """Delete the folders of a mailbox, unless it holds files."""
        try:
            os.rmdir(f"{self._incoming}/{hash_}")
            for folder in FOLDERS:
                os.rmdir(f"{self._root}/{hash_}/{folder}")
            os.unlink(self._tmp(hash_))
            os.rmdir(f"{self._root}/{hash_}")
        except OSError:
            pass  # not empty

    def _tmp(self, hash_: str) -> str:
        return f"{self._root}/{hash_}/tmp"

    def sizes(self, hash_: str, folder: str) -> dict[str, int]:
        """Return the size of every message file in a folder, by name."""
        try:
            with os.scandir(f"{self._root}/{hash_}/{folder}") as entries:
                return {
                    entry.name: entry.stat().st_size
                    for entry in entries
                    if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False)
                }
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def changed_ns(self, hash_: str) -> int:
        """Return when (ns) a file was last added to `new/` or removed; 0 without a directory."""
        try:
            return os.stat(f"{self._root}/{hash_}/new").st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def modified_us(self, hash_: str, name: str) -> int:
        """Return when (µs) the file `name` in `new/` was last written."""
        path = f"{self._root}/{hash_}/new/{name}"
        return os.stat(path, follow_symlinks=False).st_mtime_ns // 1000

    def has_own_content(self, hash_: str, folder: str, name: str) -> bool:
        """Return whether a file holds the message whose id is its name."""
        with open(f"{self._root}/{hash_}/{folder}/{name}", "rb") as file:
            return f'"id":"{name}"'.encode() in file.read(_HEAD_BYTES)

    def read(self, hash_: str, folder: str, name: str) -> bytes:
        """Return the content of one file; raise `UnsuitableFile` for one that is no message.

        Links are not followed, and pipes not waited for.
        """
        path = f"{self._root}/{hash_}/{folder}/{name}"
        return read_file(path, mailbox_file_max_bytes, follow_links=False)


def _make_directory(path: str) -> bool:
    """Create a directory and the missing one above, unlike `os.makedirs` both with mode 0700.

    Return False if it existed.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return False
    except FileNotFoundError:
        os.mkdir(os.path.dirname(path), 0o700)
        os.mkdir(path, 0o700)
    return True


def _remove_directory(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        pass  # not empty


def _write(descriptor: int, content: bytes) -> None:
    if os.write(descriptor, content) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
