"""Authentication of agents and of the operator, for HTTP and WebSocket.

Rule 1  A proof is valid once: its nonce is used up, whatever the outcome.
Rule 2  A proof is for this relay: it includes the origin that the agent connected to.
Rule 3  A subject belongs to the first key that authenticated as it.

Files in the data directory, accessible to the owner only: `identities.jsonl`, `token-secret` and
`operator-token`. The caller owns the directory (the relay holds its lock).
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from waypost.policy.errors import InvalidMessage
from waypost.server.identity.bindings import Bindings
from waypost.server.identity.challenges import Challenges, is_signed_by, possible_origins
from waypost.server.identity.errors import NotAuthenticated
from waypost.server.identity.tokens import OperatorToken, Tokens
from waypost.wire.handshake import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    from_text,
    proof_text,
    sealing_key_text,
    validate_agent_subject,
)
from waypost.wire.sealing import Card


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The token of an authenticated `subject`, valid until `expires_at` (ms since the epoch)."""

    subject: str
    token: str
    expires_at: int


class Authenticator:
    """Authenticate agents by key or token, and the operator by token.

    Safe to use from several threads: `authenticate` waits for the disk when a subject
    authenticates for the first time.
    """

    def __init__(
        self,
        bindings: Bindings,
        tokens: Tokens,
        operator: OperatorToken,
        clock_ms: Callable[[], int],
    ) -> None:
        self._bindings = bindings
        self._tokens = tokens
        self._operator = operator
        self._clock_ms = clock_ms
        self._challenges = Challenges()

    @classmethod
    def open(cls, data_dir: Path, clock_ms: Callable[[], int]) -> "Authenticator":
        """Open the identities of a data directory, creating missing files.

        Raises `IdentitiesDamaged` or `SecretUnusable`; the relay must not be served then.
        """
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        operator = OperatorToken.open(data_dir / "operator-token")
        tokens = Tokens.open(data_dir / "token-secret")
        return cls(Bindings.open(data_dir / "identities.jsonl"), tokens, operator, clock_ms)

    def close(self) -> None:
        """Close the files. New subjects are rejected from now on."""
        self._bindings.close()

    def challenge(self) -> str:
        """Return a nonce to be signed once, within a minute."""
        return self._challenges.issue(self._clock_ms())

    def authenticate(  # noqa: PLR0913 - each is part of one proof
        self,
        *,
        subject: str,
        public_key: str,
        signature: str,
        nonce: str,
        origin: str,
        sealing_key: str | None = None,
        sealing_signature: str | None = None,
    ) -> Grant:
        """Authenticate an agent that signed `nonce`. `origin` is the Host header of its request.

        Raises `InvalidInput` for a malformed or reserved subject, key or signature;
        `NotAuthenticated`; `SubjectTaken`; `TooManyIdentities` or `IdentitiesNotSaved`.
        """
        now_ms = self._clock_ms()
        is_fresh = self._challenges.redeem(nonce, now_ms)
        validate_agent_subject(subject)
        key = from_text(public_key, KEY_BYTES)
        signed = from_text(signature, SIGNATURE_BYTES)
        texts = [
            proof_text(origin=one, nonce=nonce, subject=subject, public_key=public_key)
            for one in possible_origins(origin)
        ]
        if not is_fresh or not any(is_signed_by(key, signed, text) for text in texts):
            raise NotAuthenticated
        _check_sealing_key(subject, key, sealing_key, sealing_signature)
        self._bindings.bind(subject, public_key, now_ms, sealing_key, sealing_signature)
        token, expires_at = self._tokens.issue(subject, now_ms)
        return Grant(subject=subject, token=token, expires_at=expires_at)

    def subject_of_token(self, token: str) -> str | None:
        """Return the subject of a token; None if it has expired or was not issued here."""
        return self._tokens.subject_of(token, self._clock_ms())

    def is_operator(self, token: str) -> bool:
        """Return whether `token` is the operator's."""
        return self._operator.matches(token)

    def has_authenticated(self, subject: str) -> bool:
        """Return whether an agent has ever authenticated as `subject`."""
        return self._bindings.get(subject) is not None

    def card(self, subject: str) -> Card | None:
        """Return the public keys of `subject`; None if it has never authenticated here."""
        binding = self._bindings.get(subject)
        if binding is None:
            return None
        return Card(
            subject=subject,
            public_key=binding.public_key,
            sealing_key=binding.sealing_key,
            sealing_signature=binding.sealing_signature,
        )


def _check_sealing_key(
    subject: str, key: bytes, sealing_key: str | None, signature: str | None
) -> None:
    if sealing_key is None and signature is None:
        return
    if sealing_key is None or signature is None:
        raise InvalidMessage("sealing_key and sealing_signature must be given together")
    from_text(sealing_key, KEY_BYTES)
    text = sealing_key_text(subject=subject, sealing_key=sealing_key)
    if not is_signed_by(key, from_text(signature, SIGNATURE_BYTES), text):
        raise InvalidMessage("sealing_signature does not match sealing_key and subject")
