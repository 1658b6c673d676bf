"""Secrets of the relay in files of their own, made once.

Failures and answers:
  no file                  one is made, with a new random secret; never readable by others, not
                           even for a moment
  crash while it is made   the next start makes another: nobody can have seen the first
  open to others           refused, with the command that mends it; whoever could read it may have
  too short, not text      refused: a guessable secret is worse than none
"""

import os
import secrets
import stat
from pathlib import Path

from waypost.relay.journal.writer import sync_directory
from waypost.server.identity.errors import SecretUnusable

SECRET_BYTES = 32
SECRET_MIN_CHARS = 32
_READ_MAX_BYTES = 4096


def keep_secret(path: Path) -> str:
    """The secret in `path`, made first if there is none. Raises `SecretUnusable`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return _make(path)
    except OSError as problem:
        raise SecretUnusable(f"{path} cannot be read: {problem.strerror}") from None
    try:
        _reject_open_files(descriptor, path)
        content = os.read(descriptor, _READ_MAX_BYTES)
    finally:
        os.close(descriptor)
    return _secret_in(content, path)


def _make(path: Path) -> str:
    secret = secrets.token_urlsafe(SECRET_BYTES)
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(unfinished, flags, 0o600)
    try:
        os.write(descriptor, f"{secret}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(unfinished, path)
    sync_directory(path.parent)
    return secret


def _reject_open_files(descriptor: int, path: Path) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise SecretUnusable(f"{path} is not a file")
    if status.st_mode & 0o077:
        raise SecretUnusable(
            f"{path} can be read or written by others: delete it and start again, which makes a"
            f" new one, or, if nobody else has read it, run: chmod 600 {path}"
        )


def _secret_in(content: bytes, path: Path) -> str:
    secret = content.decode("ascii", errors="replace").strip()
    if len(secret) < SECRET_MIN_CHARS or not all("!" <= one <= "~" for one in secret):
        raise SecretUnusable(
            f"{path} holds no secret: expected at least {SECRET_MIN_CHARS} printable characters"
            " on one line; delete it, and the next start makes a new one"
        )
    return secret
