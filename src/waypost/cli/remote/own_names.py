"""Names for several programs of one person: each window of an assistant gets one of its own.

Rule 1  The names are BASE, BASE.2, BASE.3 and so on. A program takes the first that no other
        program on this machine uses and that is free at the relay, or its own from before.
Rule 2  A name is in use as long as its process holds the lock beside the key file: after a crash
        it is free.
Rule 3  New keys are saved before the name is bound: a name is never bound to keys that are lost.
        If the name is taken, they are removed.
"""

import fcntl
import getpass
import os
import re
from contextlib import closing
from pathlib import Path

from waypost.cli.remote.credentials import default_key_file
from waypost.client.http import HttpClient, RemoteError
from waypost.client.identity import Identity
from waypost.policy.errors import WaypostError
from waypost.wire.handshake import validate_agent_subject

NAMES_MAX = 100
"""Names that are tried."""


class NoNameLeft(WaypostError):
    """Every name that was tried is in use."""


class NameLock:
    """The lock of a name for this process; it ends with the process, or with `release`."""

    def __init__(self, key_file: Path) -> None:
        key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = key_file.with_name(f"{key_file.name}.lock")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.is_held = True
        except BlockingIOError:
            self.is_held = False
            os.close(self._descriptor)

    def release(self) -> None:
        """Let another process take the name."""
        self.is_held = False
        os.close(self._descriptor)


def default_base() -> str:
    """Return the name to begin with: that of the person who runs this program."""
    try:
        login = re.sub(r"[^A-Za-z0-9_-]", "-", getpass.getuser())
    except (KeyError, OSError):
        login = ""
    return f"agent.{login or 'me'}"


def take_name(url: str, base: str) -> tuple[Identity, NameLock]:
    """Return the keys of the first name under `base` that this process can use, and its lock.

    Without an answer of the relay, the name is not checked there. Raises `NoNameLeft`,
    `KeyFileError`, `InvalidInput`, and `RemoteError` if the relay lets in no such name.
    """
    validate_agent_subject(base)
    with closing(HttpClient(url)) as api:
        for number in range(1, NAMES_MAX + 1):
            subject = base if number == 1 else f"{base}.{number}"
            file = default_key_file(subject)
            lock = NameLock(file)
            if not lock.is_held:
                continue
            identity = _keys(api, subject, file)
            if identity is not None:
                return identity, lock
            lock.release()
    raise NoNameLeft(
        f"{base} and {NAMES_MAX - 1} names after it are in use: close some windows, or choose"
        " another name with --subject"
    )


def _keys(api: HttpClient, subject: str, file: Path) -> Identity | None:
    """Return the keys of a name, new ones if there are none; None if another key owns it."""
    is_new = not file.exists()
    identity = Identity.new(subject) if is_new else Identity.load(file)
    if is_new:
        identity.save(file)
    try:
        api.log_in(identity)
    except RemoteError as problem:
        if not problem.status:
            return identity  # the relay may start later
        if is_new:
            file.unlink()
        if problem.reason in ("subject_taken", "key_revoked"):
            return None
        raise
    return identity
