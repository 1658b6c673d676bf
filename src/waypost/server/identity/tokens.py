"""Bearer tokens of agents, the operator's token, and the secrets behind both.

Rule 1  An agent's token is valid for 15 minutes, the last millisecond included. The relay keeps
        no list of tokens, so none can be revoked; they are short-lived instead.
Rule 2  The signing secret is in the data directory: tokens survive a restart.
Rule 3  An invalid token belongs to no subject; it is never an error.
Rule 4  A caller with the content of `<data>/operator-token` is the operator. To change it, put
        another into the file, or delete the file, and restart.

Failures and answers, for the files of secrets:
  no file                  one is created with a new random secret, never readable by others, not
                           even for a moment
  crash while creating it  the next start creates another: the first was never used
  readable by others       rejected, with the command to fix it: the secret may have leaked
  too short, not text      rejected: a secret that can be guessed is worse than none
"""

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from waypost.policy.bounds import subject_length_max_chars
from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import is_subject
from waypost.relay.data_dir import sync_directory
from waypost.server.identity.errors import SecretUnusable
from waypost.wire.handshake import from_text, to_text

TOKEN_ALIVE_MS = 15 * 60_000
TOKEN_MAX_CHARS = 2 * subject_length_max_chars + 100
SECRET_BYTES = 32
SECRET_MIN_CHARS = 32

_PURPOSE = b"waypost-token-1\n"
_READ_MAX_BYTES = 4096


class Tokens:
    """Issue and verify the tokens of agents."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def open(cls, path: Path) -> "Tokens":
        """Use the secret in `path`, created at the first start. Raises `SecretUnusable`."""
        return cls(load_secret(path).encode())

    def issue(self, subject: str, now_ms: int) -> tuple[str, int]:
        """Return a token for `subject`, and its expiry (ms since the epoch)."""
        expires_at = now_ms + TOKEN_ALIVE_MS
        claim = f"{subject}\n{expires_at}".encode()
        return f"{to_text(claim)}.{to_text(self._mac(claim))}", expires_at

    def subject_of(self, token: str, now_ms: int) -> str | None:
        """Return the subject of a token; None if it has expired or was not issued here."""
        given: object = token
        if not isinstance(given, str) or len(given) > TOKEN_MAX_CHARS:
            return None
        claim_text, _, mac_text = given.partition(".")
        try:
            claim, mac = from_text(claim_text), from_text(mac_text)
        except InvalidInput:
            return None
        if not hmac.compare_digest(mac, self._mac(claim)):
            return None
        subject, _, expires_at = claim.decode().partition("\n")
        return subject if now_ms <= int(expires_at) and is_subject(subject) else None

    def _mac(self, claim: bytes) -> bytes:
        return hmac.digest(self._secret, _PURPOSE + claim, hashlib.sha256)


class OperatorToken:
    """Verify the operator's token."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    @classmethod
    def open(cls, path: Path) -> "OperatorToken":
        """Use the token in `path`, created at the first start. Raises `SecretUnusable`."""
        return cls(load_secret(path))

    def matches(self, token: str) -> bool:
        """Return whether `token` is the operator's, in constant time."""
        given: object = token
        if not isinstance(given, str):
            return False
        return hmac.compare_digest(given.encode(errors="backslashreplace"), self._secret)


def load_secret(path: Path) -> str:
    """Return the secret in `path`, creating it if there is none. Raises `SecretUnusable`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return _create(path)
    except OSError as problem:
        raise SecretUnusable(f"{path} cannot be read: {problem.strerror}") from None
    try:
        _require_private(descriptor, path)
        content = os.read(descriptor, _READ_MAX_BYTES)
    finally:
        os.close(descriptor)
    return _parse_secret(content, path)


def _create(path: Path) -> str:
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


def _require_private(descriptor: int, path: Path) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise SecretUnusable(f"{path} is not a regular file")
    if status.st_mode & 0o077:
        raise SecretUnusable(
            f"{path} is accessible to other users: delete it and restart to create a new secret,"
            f" or, if it has not leaked, run: chmod 600 {path}"
        )


def _parse_secret(content: bytes, path: Path) -> str:
    secret = content.decode("ascii", errors="replace").strip()
    if len(secret) < SECRET_MIN_CHARS or not all("!" <= one <= "~" for one in secret):
        raise SecretUnusable(
            f"{path} does not contain a valid secret: expected at least {SECRET_MIN_CHARS}"
            " printable characters on one line; delete it and restart to create a new one"
        )
    return secret
