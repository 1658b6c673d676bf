"""The Maildir: a view of the journal that anyone can look at, one file a message.

Rule 1  A file appears whole: written under no name or in `tmp/`, then linked or renamed.
Rule 2  Files need no sync of their own: recovery restores a missing or short one from the journal.
Rule 3  Directories are 0700, files 0600.
Rule 4  `tmp/` of each mailbox is a link into one directory, so that one watch sees what other
        processes write there, and never what the relay itself delivers.

Everything here runs after the events it follows are durable.
"""

import errno
import os
from datetime import datetime
from pathlib import Path

import msgspec

from waypost.relay.maildir.file_pool import FilePool
from waypost.wire.envelopes import Envelope

FOLDERS = ("new", "cur", "failed")
INCOMING = "incoming"
_NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})
"""What file systems without nameless files answer."""
SPARES = "spares"
_BEGINNING_BYTES = 128
"""An envelope begins with its id, also inside a dead letter."""


class DeadLetterFile(msgspec.Struct, frozen=True):
    """What lies in `failed/`."""

    envelope: Envelope
    reason: str
    failed_at: datetime


class DropInFile(msgspec.Struct):
    """What a dropped file must hold; more is ignored."""

    sender: str
    payload: msgspec.Raw
    reply_to: str | None = None
    budget: dict[str, object] | None = None


class Maildir:
    """The mailbox directories below one root."""

    def __init__(self, root: Path) -> None:
        self._incoming = str(root.parent / INCOMING)
        self._spares = FilePool(root.parent / SPARES)
        self._root = str(root)
        self._nameless = hasattr(os, "O_TMPFILE") and os.path.exists("/proc/self/fd")

    def open(self) -> bool:
        """Make ready what does not belong to any one mailbox.

        Gives whether files of the right length must be as they were written; if not, they are to
        be looked into, and then `mark_verified` is called.
        """
        self._spares.adopt()
        return self._spares.same_boot()

    def mark_verified(self) -> None:
        """Every file is as it was written."""
        self._spares.note_boot()

    def path(self, hash_: str) -> Path:
        """The directory of one mailbox."""
        return Path(self._root, hash_)

    def ensure(self, hash_: str) -> None:
        """Make the folders of a mailbox."""
        for folder in FOLDERS:
            os.makedirs(f"{self._root}/{hash_}/{folder}", mode=0o700, exist_ok=True)
        os.makedirs(f"{self._incoming}/{hash_}", mode=0o700, exist_ok=True)
        try:
            os.symlink(f"../../{INCOMING}/{hash_}", self._tmp(hash_))
        except FileExistsError:
            pass

    def deliver(self, hash_: str, name: str, content: bytes, folder: str = "new") -> None:
        """Let a message appear in `folder`, whole."""
        target = f"{self._root}/{hash_}/{folder}/{name}"
        if self._spares.fill(target, content) or (self._nameless and self._link(target, content)):
            return
        self._rename(hash_, name, content, folder)

    def _link(self, target: str, content: bytes) -> bool:
        """A file without a name, then a link to it; False where that is not possible.

        Half the directory changes of a rename, and nothing left behind by a crash. Nothing is
        seen in `tmp/`, which is watched for what other processes drop in.
        """
        try:
            descriptor = os.open(os.path.dirname(target), os.O_WRONLY | os.O_TMPFILE, 0o600)
        except OSError as problem:
            if problem.errno not in _NOT_SUPPORTED:
                raise
            self._nameless = False
            return False
        try:
            _write(descriptor, content)
            source = f"/proc/self/fd/{descriptor}"
            # A directory descriptor makes Python use linkat, which can follow the link in /proc.
            os.link(source, target, src_dir_fd=descriptor, follow_symlinks=True)
        except FileExistsError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _rename(self, hash_: str, name: str, content: bytes, folder: str) -> None:
        """A file in `tmp/`, then a rename, which replaces a file of that name."""
        base = f"{self._root}/{hash_}"
        unfinished = f"{base}/tmp/{name}"
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:  # left over from a crash in the middle of a write
            os.unlink(unfinished)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _write(descriptor, content)
        finally:
            os.close(descriptor)
        os.rename(unfinished, f"{base}/{folder}/{name}")

    def move(self, hash_: str, name: str, origin: str, target: str) -> None:
        """Rename a message from one folder to another, if it is there."""
        base = f"{self._root}/{hash_}"
        try:
            os.rename(f"{base}/{origin}/{name}", f"{base}/{target}/{name}")
        except FileNotFoundError:
            pass

    def remove(self, hash_: str, name: str, *folders: str) -> None:
        """Delete a message from whichever of `folders` it is in."""
        for folder in folders:
            try:
                self._spares.give(f"{self._root}/{hash_}/{folder}/{name}")
            except FileNotFoundError:
                continue
            return

    def discard(self, hash_: str, name: str) -> None:
        """Delete from `new/` a file that another process made."""
        Path(self._root, hash_, "new", name).unlink(missing_ok=True)

    def remove_mailbox(self, hash_: str) -> None:
        """Delete the folders of an empty mailbox; one that holds files stays."""
        try:
            os.rmdir(f"{self._incoming}/{hash_}")
            for folder in FOLDERS:
                os.rmdir(f"{self._root}/{hash_}/{folder}")
            os.unlink(self._tmp(hash_))
            os.rmdir(f"{self._root}/{hash_}")
        except OSError:
            pass  # not empty: someone's file is in it

    def _tmp(self, hash_: str) -> str:
        return f"{self._root}/{hash_}/tmp"

    def sizes(self, hash_: str, folder: str) -> dict[str, int]:
        """Name → size of every message file in a folder."""
        try:
            with os.scandir(f"{self._root}/{hash_}/{folder}") as entries:
                return {
                    entry.name: entry.stat().st_size
                    for entry in entries
                    if not entry.name.startswith(".") and entry.is_file()
                }
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def holds(self, hash_: str, folder: str, name: str) -> bool:
        """Whether a message file begins as the one with the id `name` does."""
        with open(f"{self._root}/{hash_}/{folder}/{name}", "rb") as file:
            return f'"id":"{name}"'.encode() in file.read(_BEGINNING_BYTES)

    def read(self, hash_: str, folder: str, name: str) -> bytes:
        """The content of one file."""
        return Path(self._root, hash_, folder, name).read_bytes()


def _write(descriptor: int, content: bytes) -> None:
    if os.write(descriptor, content) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
