"""The data directory: its layout, and the lock that only one process can hold.

<data>/
  lock                       locked by the owning process, as is <data> itself; contains its pid
  config.json                settings, hot-reloaded
  access-rules.json          rules, hot-reloaded
  subscriptions.json         patterns last subscribed to, for information only
  index.db                   derived from the journal; may be deleted
  relay-key                  served: the key that signs the journal
  journal/<seq>.open         being written; <seq>.jsonl once sealed; <seq>.bodies beside it
  journal/damaged/           damaged bytes set aside by recovery
  journal/remembered.db      last-seen pairs and duplicate ids of deleted segments
  mailboxes/<hash>/{new,cur,failed}/<id>
  mailboxes/<hash>/tmp       link to incoming/<hash>, where other processes write
  spares/                    pool of files to be reused
"""

import errno
import fcntl
import hashlib
import logging
import os
import sys
import time
from pathlib import Path

from waypost.relay.errors import DataDirInUse, DataDirUnusable

log = logging.getLogger("waypost.relay")

UNKNOWN_OWNER = "unknown"
_OWNER_BYTES = 32
_ATTEMPTS = 3
_RETRY_S = 0.005


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
    """Ownership of a data directory, held until `release` or the end of the process.

    Two things are locked. The directory itself cannot be deleted while it is in use. The file
    `lock` holds the pid; earlier versions lock it alone, and so does this one where a directory
    cannot be locked (NFS).
    """

    def __init__(self, data: DataDir) -> None:
        self._data = data
        self.problem = ""
        """What an operator must know: another process has locked `lock`."""
        self._directory = _lock_directory(data)
        try:
            self._file = _lock_file(data)
        except BaseException:
            _close(self._directory)
            raise
        self._write_owner(str(os.getpid()))

    def keep(self) -> None:
        """Create `lock` again if it was deleted. Raises `OSError`."""
        try:
            kept = os.path.samestat(os.stat(self._data.lock), os.fstat(self._file))
        except FileNotFoundError:
            kept = False
        if not kept:
            try:
                file = _lock_file(self._data)
            except DataDirInUse as problem:
                if not self.problem:
                    log.error("lock: %s", problem)
                self.problem = str(problem)
                return
            os.close(self._file)
            self._file = file
            self._write_owner(str(os.getpid()))
            log.warning("lock: %s was deleted, and is created again", self._data.lock)
        self.problem = ""

    def release(self) -> None:
        """Give up the ownership, whatever the disk does."""
        self._write_owner("")
        os.close(self._file)
        _close(self._directory)

    def _write_owner(self, pid: str) -> None:
        """Write the pid, which is for information only, over the one before: needs no new room."""
        try:
            os.pwrite(self._file, f"{pid}\n".encode().ljust(_OWNER_BYTES), 0)
        except OSError as problem:
            log.warning("lock: pid not written to %s: %s", self._data.lock, problem)


def _lock_directory(data: DataDir) -> int:
    """Lock the directory and return its descriptor; -1 where that is not possible."""
    descriptor = os.open(data.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor)
    except OSError as problem:
        os.close(descriptor)
        if isinstance(problem, BlockingIOError):
            raise _in_use(data) from None
        return -1
    return descriptor


def _lock_file(data: DataDir) -> int:
    descriptor = os.open(data.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor)
    except OSError:
        os.close(descriptor)
        raise _in_use(data) from None
    return descriptor


def _lock(descriptor: int) -> None:
    """Lock a file or directory; a lock of a moment, by `owner_of`, is waited for."""
    for _ in range(_ATTEMPTS - 1):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_RETRY_S)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _in_use(data: DataDir) -> DataDirInUse:
    return DataDirInUse(
        f"{data.root} is in use by another process (pid {_read_owner(data) or UNKNOWN_OWNER});"
        " stop that process, or connect to its relay"
    )


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _read_owner(data: DataDir) -> str:
    """Return the pid in `lock`, which may be of a process that has ended; "" without one."""
    try:
        with data.lock.open("rb") as file:
            return file.read(_OWNER_BYTES).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def owner_of(data: DataDir) -> str:
    """Return the pid of the process that owns the directory, or "" if there is none."""
    # A pid may be left behind by a crash, and `lock` may have been deleted: only locks count.
    if _is_locked(data.lock) or _is_locked(data.root):
        return _read_owner(data) or UNKNOWN_OWNER
    return ""


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a directory on NFS
    finally:
        os.close(descriptor)
    return False


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of `path`; after a crash it is the old content or the new."""
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.unlink(missing_ok=True)  # another process may have the old one open, or a link to it
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
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


def replace_linked_file(path: Path, content: bytes) -> None:
    """Replace the content of an operator's file; if it is a link, that of its target.

    Raises `DataDirUnusable` if that is not possible.
    """
    try:
        replace_file(Path(os.path.realpath(path)), content)
    except OSError as problem:
        raise DataDirUnusable(f"{path} could not be written: {problem.strerror}") from None


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
