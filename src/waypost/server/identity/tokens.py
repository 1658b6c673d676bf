"""Bearer tokens of agents, the operator's token, and the secrets behind both.

Rule 1  An agent's token is valid for 15 minutes, the last millisecond included, and not before it
        was issued. It is for a subject and a key: the caller rejects it once the subject belongs
        to another key. The relay keeps no list of tokens, so none can be revoked alone.
Rule 2  The signing secret is in the data directory: tokens survive a restart.
Rule 3  An invalid token belongs to no subject; it is never an error.
Rule 4  A caller with the content of `<data>/operator-token` is the operator. To change it, put
        another into the file, or delete the file, and restart.

Failures and answers, for the files of secrets:
  no file                  one is created with a new random secret, never readable by others, not
                           even for a moment
  crash while creating it  the next start creates another: the first was never used
  readable by others       rejected, with the command to fix it: the secret may have leaked
  no regular file, large   rejected, without waiting
  too short, not text      rejected: a secret that can be guessed is worse than none
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import NamedTuple

from waypost.files import ExposedFile, UnsuitableFile, read_secret
from waypost.policy.bounds import subject_length_max_chars
from waypost.policy.errors import InvalidInput
from waypost.policy.names import network_of
from waypost.policy.subjects import is_subject
from waypost.relay.data_dir import sync_directory
from waypost.server.identity.errors import SecretUnusable
from waypost.wire.handshake import from_text, to_text

TOKEN_ALIVE_MS = 15 * 60_000
TOKEN_MAX_CHARS = 2 * subject_length_max_chars + 200
SECRET_BYTES = 32
SECRET_MIN_CHARS = 32
NETWORK_KEY_BYTES = 8

_PURPOSE = b"waypost-token-2\n"
_NETWORK_PURPOSE = b"waypost-network-1\n"


class Holder(NamedTuple):
    """The subject and the public key that a token was issued for."""

    subject: str
    public_key: str


class Tokens:
    """Issue and verify the tokens of agents."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def open(cls, path: Path) -> "Tokens":
        """Use the secret in `path`, created at the first start. Raises `SecretUnusable`."""
        return cls(load_secret(path).encode())

    def issue(self, subject: str, public_key: str, now_ms: int) -> tuple[str, int]:
        """Return a token for `subject` with that key, and its expiry (ms since the epoch)."""
        expires_at = now_ms + TOKEN_ALIVE_MS
        claim = f"{subject}\n{public_key}\n{expires_at}".encode()
        return f"{to_text(claim)}.{to_text(self._mac(claim))}", expires_at

    def holder_of(self, token: str, now_ms: int) -> Holder | None:
        """Return whom a token is for; None if it is not valid now or was not issued here."""
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
        subject, public_key, expires_at = claim.decode().split("\n")
        valid = 0 <= int(expires_at) - now_ms <= TOKEN_ALIVE_MS and is_subject(subject)
        return Holder(subject, public_key) if valid else None

    def network_key(self, address: str) -> str:
        """Return what stands for the network of `address` in the journal: a keyed hash."""
        text = _NETWORK_PURPOSE + network_of(address).encode()
        return hmac.digest(self._secret, text, hashlib.sha256)[:NETWORK_KEY_BYTES].hex()

    def _mac(self, claim: bytes) -> bytes:
        return hmac.digest(self._secret, _PURPOSE + claim, hashlib.sha256)


class OperatorToken:
    """Verify the operator's token."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def open(cls, path: Path) -> "OperatorToken":
        """Use the token in `path`, created at the first start. Raises `SecretUnusable`."""
        return cls(load_secret(path))

    def matches(self, token: str) -> bool:
        """Return whether `token` is the operator's, in constant time."""
        given: object = token
        if not isinstance(given, str):
            return False
        return hmac.compare_digest(given.encode(errors="backslashreplace"), self.text.encode())


def load_secret(path: Path) -> str:
    """Return the secret in `path`, creating it if there is none. Raises `SecretUnusable`."""
    try:
        return _parse_secret(read_secret(path), path)
    except FileNotFoundError:
        return _create(path)
    except ExposedFile:
        raise SecretUnusable(
            f"{path} is accessible to other users: delete it and restart to create a new secret,"
            f" or, if it has not leaked, run: chmod 600 {path}"
        ) from None
    except UnsuitableFile as problem:
        raise SecretUnusable(f"{path} is {problem.strerror}") from None
    except OSError as problem:
        raise SecretUnusable(f"{path} cannot be read: {problem.strerror}") from None


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


def _parse_secret(content: bytes, path: Path) -> str:
    secret = content.decode("ascii", errors="replace").strip()
    if len(secret) < SECRET_MIN_CHARS or not all("!" <= one <= "~" for one in secret):
        raise SecretUnusable(
            f"{path} does not contain a valid secret: expected at least {SECRET_MIN_CHARS}"
            " printable characters on one line; delete it and restart to create a new one"
        )
    return secret
