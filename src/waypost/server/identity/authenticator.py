"""Authentication of agents and of the operator, for HTTP and WebSocket.

Rule 1  A proof is valid once: its nonce is used up, whatever the outcome.
Rule 2  A proof is for this relay: it names one of the relay's own origins, the one that the agent
        connected to.
Rule 3  A subject belongs to the first key that authenticated as it, or to the one that the
        operator bound; `policy.names` decides which names need the operator.
Rule 4  A key is rotated with a proof by itself and one by the key that replaces it.
Rule 5  A token ends with the binding it was issued for.

Files in the data directory, accessible to the owner only: `identities.jsonl`, `token-secret` and
`operator-token`. The caller owns the directory (the relay holds its lock).
"""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from waypost.policy.bounds import (
    all_name_changes_per_minute_max,
    name_changes_per_minute_max,
)
from waypost.policy.errors import InvalidMessage
from waypost.policy.names import NamesConfig, NewNames, needs_operator
from waypost.policy.own_changes import OwnChanges
from waypost.server.identity.binding_file import Binding
from waypost.server.identity.bindings import Bindings
from waypost.server.identity.challenges import Challenges, is_signed_by
from waypost.server.identity.errors import (
    NameReserved,
    NewNamesPaused,
    NotAuthenticated,
    TooManyChanges,
    TooManyNames,
    TooManyNewNames,
)
from waypost.server.identity.tokens import OperatorToken, Tokens
from waypost.wire.cards import NO_CARD, AgentCard
from waypost.wire.handshake import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    from_text,
    proof_text,
    rotation_text,
    sealing_key_text,
    signing_key_from,
    validate_agent_subject,
)
from waypost.wire.sealing import Card


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The token of an authenticated `subject`, valid until `expires_at` (ms since the epoch)."""

    subject: str
    token: str
    expires_at: int


class Identities(NamedTuple):
    """Where an authenticator finds keys and secrets, its own or those of several relays."""

    bindings: Bindings
    tokens: Tokens
    operator: OperatorToken
    is_shared: bool = False


class Authenticator:
    """Authenticate agents by key or token, and the operator by token.

    Safe to use from several threads: `authenticate` waits for the disk when a subject
    authenticates for the first time. `names` returns the settings of names in force, None while
    they are unknown: then no new name is bound.
    """

    def __init__(
        self,
        identities: Identities,
        clock_ms: Callable[[], int],
        names: Callable[[], NamesConfig | None] = NamesConfig,
    ) -> None:
        self.bindings, self._tokens, self._operator, self._is_shared = identities
        self._names = names
        self._new_names = NewNames()
        self._changes = OwnChanges(
            "this name", name_changes_per_minute_max, all_name_changes_per_minute_max
        )
        self._clock_ms = clock_ms
        self._challenges = Challenges()

    @classmethod
    def open(
        cls,
        data_dir: Path,
        clock_ms: Callable[[], int],
        names: Callable[[], NamesConfig | None] = NamesConfig,
    ) -> "Authenticator":
        """Open the identities of a data directory, creating missing files.

        Raises `IdentitiesDamaged` or `SecretUnusable`; the relay must not be served then.
        """
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        operator = OperatorToken.open(data_dir / "operator-token")
        tokens = Tokens.open(data_dir / "token-secret")
        bindings = Bindings.open(data_dir / "identities.jsonl")
        return cls(Identities(bindings, tokens, operator), clock_ms, names)

    def close(self) -> None:
        """Close the files, unless others share them. New subjects are rejected from now on."""
        if not self._is_shared:
            self.bindings.close()

    def network_key(self, address: str) -> str:
        """Return a keyed hash of the network of `address`, which cannot be computed elsewhere."""
        return self._tokens.network_key(address)

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
        origins: Collection[str],
        sealing_key: str | None = None,
        sealing_signature: str | None = None,
        address: str = "",
        now_ms: int | None = None,
    ) -> Grant:
        """Authenticate an agent that signed `nonce` for one of `origins`, names of this relay.

        `address` is that of the caller, if it is known. A caller on another thread than the
        clock's gives the time. Raises `InvalidInput` for a malformed or reserved subject, key or
        signature, and any `IdentityError` but those about files.
        """
        now_ms = self._clock_ms() if now_ms is None else now_ms
        is_fresh = self._challenges.redeem(nonce, now_ms)
        validate_agent_subject(subject)
        key = signing_key_from(public_key)
        signed = from_text(signature, SIGNATURE_BYTES)
        texts = [
            proof_text(origin=one, nonce=nonce, subject=subject, public_key=public_key)
            for one in origins
        ]
        if not is_fresh or not any(is_signed_by(key, signed, text) for text in texts):
            raise NotAuthenticated
        _check_sealing_key(subject, key, sealing_key, sealing_signature)
        self.bindings.bind(
            subject,
            public_key,
            now_ms,
            sealing_key,
            sealing_signature,
            admit=partial(self._admit, subject, public_key, address, now_ms),
        )
        token, expires_at = self._tokens.issue(subject, public_key, now_ms)
        return Grant(subject=subject, token=token, expires_at=expires_at)

    def rotate(  # noqa: PLR0913 - each is part of one proof
        self,
        *,
        subject: str,
        public_key: str,
        new_public_key: str,
        signature: str,
        new_signature: str,
        nonce: str,
        origins: Collection[str],
        sealing_key: str | None = None,
        sealing_signature: str | None = None,
        now_ms: int,
    ) -> bool:
        """Move `subject` to a new key; both keys signed `nonce` for one of `origins`.

        Return False if that was done before. Raises `InvalidInput` for a malformed key or
        signature, and any `IdentityError` but those about files.
        """
        is_fresh = self._challenges.redeem(nonce, now_ms)
        validate_agent_subject(subject)
        old, new = signing_key_from(public_key), signing_key_from(new_public_key)
        if old == new:
            raise InvalidMessage("new_public_key is the old one: create new keys")
        signed = [from_text(one, SIGNATURE_BYTES) for one in (signature, new_signature)]
        texts = [
            rotation_text(
                origin=one,
                nonce=nonce,
                subject=subject,
                public_key=public_key,
                new_public_key=new_public_key,
            )
            for one in origins
        ]
        if not is_fresh or not any(
            is_signed_by(old, signed[0], text) and is_signed_by(new, signed[1], text)
            for text in texts
        ):
            raise NotAuthenticated
        _check_sealing_key(subject, new, sealing_key, sealing_signature)
        return self.bindings.rotate(
            subject,
            public_key,
            new_public_key,
            now_ms,
            sealing_key,
            sealing_signature,
            admit=partial(self._admit_change, now_ms),
        )

    def set_card(self, subject: str, card: AgentCard, now_ms: int) -> Binding:
        """Keep what the agent of `subject` says about itself; the empty card is none.

        Raises `TooManyChanges`, `TooManyCards`, `NameNotBound` or `IdentitiesNotSaved`.
        """
        kept = None if card == NO_CARD else card
        return self.bindings.set_card(subject, kept, admit=partial(self._limit_changes, now_ms))

    def subject_of_token(self, token: str) -> str | None:
        """Return the subject of a token; None if it is not valid, or not any more."""
        holder = self._tokens.holder_of(token, self._clock_ms())
        if holder is None or not self.holds(*holder):
            return None
        self.bindings.note_use(holder.subject)
        return holder.subject

    def holds(self, subject: str, public_key: str) -> bool:
        """Return whether `subject` belongs to this key, and may be used with it."""
        binding = self.bindings.get(subject)
        return binding is not None and binding.public_key == public_key and self.admits(binding)

    def admits(self, binding: Binding) -> bool:
        """Return whether the settings let its agent authenticate."""
        names = self._names()
        return binding.by_operator or names is None or not needs_operator(binding.subject, names)

    def is_operator(self, token: str) -> bool:
        """Return whether `token` is the operator's."""
        return self._operator.matches(token)

    def has_authenticated(self, subject: str) -> bool:
        """Return whether `subject` belongs to a key."""
        return self.bindings.get(subject) is not None

    def key_of(self, subject: str) -> str | None:
        """Return the public key that `subject` belongs to; None if it is free."""
        binding = self.bindings.get(subject)
        return None if binding is None else binding.public_key

    def have_same_owner(self, subject: str, other: str) -> bool:
        """Return whether both belong to one key, which may use `other`; that counts as its use."""
        key = self.key_of(subject)
        if key is None or not self.holds(other, key):
            return False
        self.bindings.note_use(other)
        return True

    def card(self, subject: str) -> Card | None:
        """Return the public keys of `subject`; None if it belongs to no key.

        The name counts as used: the caller may rely on its key from now on.
        """
        binding = self.bindings.get(subject)
        if binding is None:
            return None
        self.bindings.note_use(subject)
        return Card(
            subject=subject,
            public_key=binding.public_key,
            sealing_key=binding.sealing_key,
            sealing_signature=binding.sealing_signature,
        )

    def _admit(
        self,
        subject: str,
        public_key: str,
        address: str,
        now_ms: int,
        known: Binding | None,
        held: int,
    ) -> None:
        """Raise an error unless the settings let this key use `subject`."""
        names = self._names()
        if known is not None:
            if not self.admits(known):
                raise NameReserved(subject, public_key)
            return
        if names is None:
            raise NewNamesPaused
        if needs_operator(subject, names):
            raise NameReserved(subject, public_key)
        verdict = self._new_names.check(held, address, names, now_ms)
        if verdict.allowed:
            self._new_names.record(address, now_ms)
        elif verdict.retry_after_ms:
            raise TooManyNewNames(verdict.detail, verdict.retry_after_ms)
        else:
            raise TooManyNames(verdict.detail)

    def _admit_change(self, now_ms: int, known: Binding | None, held: int) -> None:
        """Raise an error unless the owner of `known` may move it to a key with `held` names."""
        names = self._names()
        if known is None or names is None:
            raise NewNamesPaused
        if not self.admits(known):
            raise NameReserved(known.subject, known.public_key)
        if held >= names.max_per_key:
            raise TooManyNames(f"the new key holds {held:,} names, as many as names.maxPerKey")
        self._limit_changes(now_ms, known, held)

    def _limit_changes(self, now_ms: int, known: Binding | None, held: int) -> None:
        """Raise `TooManyChanges` if the owner of `known` changed it too often; count a change."""
        assert known is not None  # a free name has no owner to change it
        verdict = self._changes.admit(known.subject, now_ms)
        if not verdict.allowed:
            raise TooManyChanges(verdict.detail, verdict.retry_after_ms)


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
