"""Challenges: random numbers that may be signed once, soon.

Rule 1  A nonce is redeemed at most once, whatever came of it.
Rule 2  It is alive for a minute, the last millisecond included.
Rule 3  Past the bound the oldest goes first: a flood of questions costs memory to nobody.
"""

import secrets
import threading

from waypost.policy.bounds import challenges_max
from waypost.wire.handshake import NONCE_BYTES, to_text

CHALLENGE_ALIVE_MS = 60_000


class Challenges:
    """The nonces that are out. May be used from several threads."""

    def __init__(self, limit: int = challenges_max) -> None:
        self._limit = limit
        self._issued_at: dict[str, int] = {}  # the oldest first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._issued_at)

    def issue(self, now_ms: int) -> str:
        """A new nonce, base64url."""
        nonce = to_text(secrets.token_bytes(NONCE_BYTES))
        with self._lock:
            self._make_room(now_ms)
            self._issued_at[nonce] = now_ms
        return nonce

    def redeem(self, nonce: str, now_ms: int) -> bool:
        """Whether `nonce` was issued within the last minute and not redeemed before."""
        with self._lock:
            issued_at = self._issued_at.pop(nonce, None)
        return issued_at is not None and now_ms - issued_at <= CHALLENGE_ALIVE_MS

    def _make_room(self, now_ms: int) -> None:
        while self._issued_at:
            oldest = next(iter(self._issued_at))
            is_over = now_ms - self._issued_at[oldest] > CHALLENGE_ALIVE_MS
            if not is_over and len(self._issued_at) < self._limit:
                return
            del self._issued_at[oldest]
