"""The Maildir: a view of the journal that anyone can look at, one file a message.

Rule 1  A file appears whole: written in `tmp/`, then renamed.
Rule 2  Files need no sync of their own: recovery restores a missing or short one from the journal.
Rule 3  Directories are 0700, files 0600.

Everything here runs after the events it follows are durable.
"""

import errno
import os
from datetime import datetime
from pathlib import Path

import msgspec

from waypost.wire.envelopes import Envelope

FOLDERS = ("tmp", "new", "cur", "failed")


class DeadLetterFile(msgspec.Struct, frozen=True):
    """What lies in `failed/`."""

    envelope: Envelope
    reason: str
    failed_at: datetime


class Maildir:
    """The mailbox directories below one root."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def path(self, hash_: str) -> Path:
        """The directory of one mailbox."""
        return Path(self._root, hash_)

    def ensure(self, hash_: str) -> None:
        """Make the folders of a mailbox."""
        for folder in FOLDERS:
            os.makedirs(f"{self._root}/{hash_}/{folder}", mode=0o700, exist_ok=True)

    def deliver(self, hash_: str, name: str, content: bytes, folder: str = "new") -> None:
        """Write a message in `tmp/` and rename it into `folder`."""
        base = f"{self._root}/{hash_}"
        unfinished = f"{base}/tmp/{name}"
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:  # left over from a crash in the middle of a write
            os.unlink(unfinished)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), unfinished)
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
                os.unlink(f"{self._root}/{hash_}/{folder}/{name}")
            except FileNotFoundError:
                continue
            return

    def remove_mailbox(self, hash_: str) -> None:
        """Delete the folders of an empty mailbox; one that holds files stays."""
        for folder in FOLDERS:
            try:
                os.rmdir(f"{self._root}/{hash_}/{folder}")
            except OSError:
                return
        try:
            os.rmdir(f"{self._root}/{hash_}")
        except OSError:
            pass

    def sizes(self, hash_: str, folder: str) -> dict[str, int]:
        """Name → size of every message file in a folder."""
        try:
            with os.scandir(f"{self._root}/{hash_}/{folder}") as entries:
                return {e.name: e.stat().st_size for e in entries if not e.name.startswith(".")}
        except FileNotFoundError:
            return {}

    def read(self, hash_: str, folder: str, name: str) -> bytes:
        """The content of one file."""
        return Path(self._root, hash_, folder, name).read_bytes()
