"""Bearer tokens: "whoever shows this is `subject`, until then", under the relay's own secret.

Rule 1  A token is good for 15 minutes, the last millisecond included. Nothing is remembered about
        it, so a token cannot be called back; it is short-lived instead.
Rule 2  The secret lies in the data directory: tokens survive a restart.
Rule 3  Whatever is not a token that was issued here is nobody's; it is never an error.
"""

import hashlib
import hmac
from pathlib import Path

from waypost.policy.bounds import subject_length_max_chars
from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import is_subject
from waypost.server.identity.secret_files import keep_secret
from waypost.wire.handshake import from_text, to_text

TOKEN_ALIVE_MS = 15 * 60_000
TOKEN_MAX_CHARS = 2 * subject_length_max_chars + 100
_PURPOSE = b"waypost-token-1\n"


class Tokens:
    """Issues tokens and knows them again."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def open(cls, path: Path) -> "Tokens":
        """With the secret in `path`, made at the first start. Raises `SecretUnusable`."""
        return cls(keep_secret(path).encode())

    def issue(self, subject: str, now_ms: int) -> tuple[str, int]:
        """A token for `subject`, and when it expires (ms since the epoch)."""
        expires_at = now_ms + TOKEN_ALIVE_MS
        claim = f"{subject}\n{expires_at}".encode()
        return f"{to_text(claim)}.{to_text(self._mac(claim))}", expires_at

    def subject_of(self, token: str, now_ms: int) -> str | None:
        """Whose token this is; None if it is over, or was never issued here."""
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
