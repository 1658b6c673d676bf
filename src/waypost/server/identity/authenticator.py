"""Who is asking: what the HTTP and WebSocket sides know about identity.

Rule 1  A proof counts once: its nonce is spent whatever the outcome.
Rule 2  A proof is for this relay: the origin the agent connected to is part of it.
Rule 3  The subject belongs to the first key that proved itself as it.

Files in the data directory, all for the owner only: `identities.jsonl`, `token-secret` and
`operator-token`. The caller owns the directory (the relay holds its lock).
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from waypost.policy.errors import InvalidMessage
from waypost.server.identity.bindings import Bindings
from waypost.server.identity.challenges import Challenges
from waypost.server.identity.errors import NotAuthenticated
from waypost.server.identity.operator import OperatorToken
from waypost.server.identity.origins import possible_origins
from waypost.server.identity.signatures import holds
from waypost.server.identity.tokens import Tokens
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
    """You are `subject`; `token` says so until `expires_at` (ms since the epoch)."""

    subject: str
    token: str
    expires_at: int


class Authenticator:
    """Knows agents by their keys and tokens, and the operator by the operator's token.

    May be used from several threads: `authenticate` waits for the disk when it meets a subject
    for the first time.
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
        """The identities of a data directory; what is missing is made.

        Raises `IdentitiesDamaged` or `SecretUnusable`, and then the relay should not be served.
        """
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        operator = OperatorToken.open(data_dir / "operator-token")
        tokens = Tokens.open(data_dir / "token-secret")
        return cls(Bindings.open(data_dir / "identities.jsonl"), tokens, operator, clock_ms)

    def close(self) -> None:
        """Let go of the files. Nobody new is taken in from here on."""
        self._bindings.close()

    def challenge(self) -> str:
        """A nonce to be signed once, within a minute."""
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
        """Let an agent in that signed `nonce`. `origin` is the Host header of its request.

        Raises `InvalidInput` for what is no subject an agent may have, no key or no signature;
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
        if not is_fresh or not any(holds(key, signed, text) for text in texts):
            raise NotAuthenticated
        _check_sealing_key(subject, key, sealing_key, sealing_signature)
        self._bindings.bind(subject, public_key, now_ms, sealing_key, sealing_signature)
        token, expires_at = self._tokens.issue(subject, now_ms)
        return Grant(subject=subject, token=token, expires_at=expires_at)

    def subject_of_token(self, token: str) -> str | None:
        """Whose token this is; None if it is over, or was never issued here."""
        return self._tokens.subject_of(token, self._clock_ms())

    def is_operator(self, token: str) -> bool:
        """Whether `token` is the operator's."""
        return self._operator.matches(token)

    def card(self, subject: str) -> Card | None:
        """The keys of `subject`, for whoever wants to encrypt to it; None if it was never here."""
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
        raise InvalidMessage("sealing_key and sealing_signature come together")
    from_text(sealing_key, KEY_BYTES)
    text = sealing_key_text(subject=subject, sealing_key=sealing_key)
    if not holds(key, from_text(signature, SIGNATURE_BYTES), text):
        raise InvalidMessage("sealing_signature does not fit sealing_key and subject")
