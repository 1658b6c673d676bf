"""The data directory: its layout, and the lock that only one process can hold.

<data>/
  lock                       held by the owning process; contains its pid
  config.json                settings, hot-reloaded
  access-rules.json          rules, hot-reloaded
  subscriptions.json         patterns last subscribed to, for information only
  index.db                   derived from the journal; may be deleted
  journal/<seq>.open         being written; <seq>.jsonl once sealed; <seq>.bodies beside it
  journal/damaged/           damaged bytes set aside by recovery
  mailboxes/<hash>/{new,cur,failed}/<id>
  mailboxes/<hash>/tmp       link to incoming/<hash>, where other processes write
  spares/                    pool of files to be reused
"""

import errno
import fcntl
import hashlib
import os
import sys
from pathlib import Path

from waypost.relay.errors import DataDirInUse, DataDirUnusable


class DataDir:
    """Paths below one data directory."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).expanduser().absolute()
        self.lock = self.root / "lock"
        self.config = self.root / "config.json"
        self.rules = self.root / "access-rules.json"
        self.subscriptions = self.root / "subscriptions.json"
        self.index = self.root / "index.db"
        self.journal = self.root / "journal"
        self.damaged = self.journal / "damaged"
        self.mailboxes = self.root / "mailboxes"
        self.incoming = self.root / "incoming"

    def create(self) -> None:
        """Create missing directories, accessible to the owner only.

        Raises `DataDirUnusable` if that is not possible, or if other users can enter the directory.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(self.root, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied", str(self.root))
            if self.root.stat().st_mode & 0o077:
                raise DataDirUnusable(
                    f"{self.root} is accessible to other users, and holds messages and secrets:"
                    f" run: chmod 700 {self.root}"
                )
            for directory in (self.journal, self.mailboxes, self.incoming):
                directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as problem:
            raise DataDirUnusable(
                f"cannot use {self.root} as a data directory: {problem.strerror};"
                " choose another or fix its permissions"
            ) from None

    def require(self) -> None:
        """Raise `DataDirUnusable` unless this directory has a journal."""
        if not self.journal.is_dir():
            raise DataDirUnusable(
                f"{self.root} is not a Waypost data directory (it has no journal/)"
            )


class DirectoryLock:
    """Ownership of a data directory, held until `release` or the end of the process."""

    def __init__(self, data: DataDir) -> None:
        self._descriptor = os.open(data.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self._descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._descriptor)
            raise DataDirInUse(
                f"{data.root} is in use by another process (pid {owner});"
                " stop that process, or connect to its relay"
            ) from None
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        """Give up the ownership."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def owner_of(data: DataDir) -> str:
    """Return the pid of the process that owns the directory, or "" if there is none."""
    try:
        file = data.lock.open("rb")
    except FileNotFoundError:
        return ""
    with file:
        pid = file.read(32).decode(errors="replace").strip()
        if pid:  # a pid left behind by a crash holds no lock
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return pid
    return ""


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of `path`; after a crash it is the old content or the new."""
    unfinished = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(unfinished))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        os.unlink(unfinished)
        raise
    os.replace(unfinished, path)


def sync_file(descriptor: int) -> None:
    """Make the content of a file durable."""
    if sys.platform == "darwin":  # only this reaches the disk itself there
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def endpoint_hash(subject: str) -> str:
    """Return the usual name of an endpoint's mailbox directory: 12 hex digits of SHA-256."""
    return long_endpoint_hash(subject)[:12]


def long_endpoint_hash(subject: str) -> str:
    """Return the name of the directory if another endpoint has the usual one: all 64 digits."""
    return hashlib.sha256(subject.encode()).hexdigest()
