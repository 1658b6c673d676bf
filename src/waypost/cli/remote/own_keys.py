"""The keys of an agent on this machine: made for a free name, and rotated.

Rule 1  Names of several programs of one person are BASE, BASE.2, BASE.3 and so on: each window of
        an assistant gets one of its own. A program takes the first that no other program on this
        machine uses and that is free at the relay, or its own from before.
Rule 2  A name is in use as long as its process holds the lock beside the key file: after a crash
        it is free.
Rule 3  New keys are saved before the relay knows them: a name never belongs to keys that are lost.
        If the relay rejects them, they are removed.

Failures of a rotation, and answers:
  crash before the relay agreed   the old keys are valid and in their file; the next rotation goes
                                  on with the new keys, which are in FILE.new
  crash afterwards                so it does: the relay answers the same rotation again
  the relay rejects it            new keys of this rotation are removed, and the old ones stay
"""

import fcntl
import getpass
import os
import re
from contextlib import closing
from pathlib import Path

from waypost.cli.options import DEFAULT_URL, RelayChoice
from waypost.cli.remote.credentials import Credentials, default_key_file, keys_missing
from waypost.cli.remote.operator_token import CredentialMissing
from waypost.client.http import HttpClient, RemoteError
from waypost.client.identity import Identity
from waypost.policy.errors import WaypostError
from waypost.wire.handshake import validate_agent_subject

NAMES_MAX = 100
"""Names that are tried."""

_KEY_CHARS = 8
"""Characters of the old public key in the name of the file that keeps it."""


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


def rotate_keys(choice: RelayChoice, subject: str | None) -> tuple[Identity, Path]:
    """Replace the keys of an agent; return the new ones and the file that keeps the old ones.

    Raises `CredentialMissing`, `KeyFileError`, `RemoteError` or `InvalidInput`.
    """
    if subject is None and choice.key is None:
        raise CredentialMissing(
            "whose keys? Name the agent, as in 'waypost keys rotate agent.web', or the file of its"
            " keys with --key"
        )
    old = Credentials(choice).identity(subject)
    if old is None or old.file is None:
        raise keys_missing(subject)
    file, unfinished = old.file, old.file.with_name(f"{old.file.name}.new")
    kept = file.with_name(f"{file.name}.old-{old.public_key[:_KEY_CHARS]}")
    goes_on = unfinished.exists()
    new = Identity.load(unfinished) if goes_on else old.successor()
    if not goes_on:
        new.save(unfinished)
    try:
        with closing(HttpClient(choice.url or DEFAULT_URL)) as api:
            api.rotate(old, new)
    except RemoteError as problem:
        if problem.status and not goes_on:  # the relay has answered: these keys own nothing
            unfinished.unlink()
        raise
    if not kept.exists():
        old.save(kept)
    new.save(file, overwrite=True)
    unfinished.unlink()
    return new, kept
