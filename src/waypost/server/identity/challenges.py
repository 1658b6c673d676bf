"""Challenges: nonces that an agent signs once, for the relay it connects to.

Rule 1  A nonce is redeemed at most once, whatever the outcome.
Rule 2  It is valid for a minute, the last millisecond included.
Rule 3  At the bound, the oldest nonce is dropped first: a flood of requests cannot grow memory.
"""

import secrets
import threading
from collections import OrderedDict

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from waypost.policy.bounds import challenges_max
from waypost.wire.handshake import NONCE_BYTES, to_text

CHALLENGE_ALIVE_MS = 60_000


class Challenges:
    """Issue and redeem nonces. Safe to use from several threads."""

    def __init__(self, limit: int = challenges_max) -> None:
        self._limit = limit
        self._issued_at: OrderedDict[str, int] = OrderedDict()  # the oldest first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._issued_at)

    def issue(self, now_ms: int) -> str:
        """Return a new nonce, as base64url."""
        nonce = to_text(secrets.token_bytes(NONCE_BYTES))
        with self._lock:
            self._make_room(now_ms)
            self._issued_at[nonce] = now_ms
        return nonce

    def redeem(self, nonce: str, now_ms: int) -> bool:
        """Return whether `nonce` was issued within the last minute and never redeemed."""
        with self._lock:
            issued_at = self._issued_at.pop(nonce, None)
        return issued_at is not None and now_ms - issued_at <= CHALLENGE_ALIVE_MS

    def _make_room(self, now_ms: int) -> None:
        while self._issued_at:
            oldest = next(iter(self._issued_at))
            is_expired = now_ms - self._issued_at[oldest] > CHALLENGE_ALIVE_MS
            if not is_expired and len(self._issued_at) < self._limit:
                return
            self._issued_at.popitem(last=False)


def is_signed_by(public_key: bytes, signature: bytes, text: bytes) -> bool:
    """Return whether `signature` is the Ed25519 signature of `text` by `public_key` (32 bytes)."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
