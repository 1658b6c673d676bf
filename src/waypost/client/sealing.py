"""Sealed payloads: encrypted to their recipient and signed by their sender.

An ephemeral X25519 key and the recipient's sealing key give a shared secret; HKDF-SHA256 derives
from it a ChaCha20-Poly1305 key that is used once. The sender signs the whole. `wire.sealing`
defines the bytes.

A valid seal proves that the holder of the key `sealer_of(payload)` wrote the content for this
message and this recipient, at a time of its own clock, with this reply address and parent. It does
not prove that the key is the sender's: compare it with the sender's card, or with the key of
earlier messages (`seal_memory`). Sealing keys are long-lived: a stolen key file decrypts everything
sealed to its owner before.

WaypostError
├── SealBroken          modified in transit, or for another message, sender or recipient
└── CardInvalid         the card has no sealing key signed by its owner
    └── CardChanged     the card has another key than the one known of the agent
"""

from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from waypost.client.identity import Identity
from waypost.policy.errors import InvalidInput, WaypostError
from waypost.wire.handshake import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    from_text,
    sealing_key_text,
    signing_key_from,
    to_text,
)
from waypost.wire.payloads import encode_payload, is_too_deep
from waypost.wire.sealing import (
    MARK,
    Card,
    Circumstances,
    Parties,
    Sealed,
    SealedV1,
    circumstances_of,
    context_text,
    is_sealed,
    sealed_of,
    signed_text,
)

__all__ = [
    "CardChanged",
    "CardInvalid",
    "SealBroken",
    "check_card",
    "is_sealed",
    "seal",
    "sealer_of",
    "unseal",
]

_NONCE_BYTES = 12


class SealBroken(WaypostError):
    """The payload was modified, or sealed for another message, sender or recipient."""


class CardInvalid(WaypostError):
    """The card has no sealing key signed by its owner."""


class CardChanged(CardInvalid):
    """The card has another key than the one known of the agent."""


def seal(
    payload: object, *, to: Card, by: Identity, message_id: str, under: Circumstances
) -> dict[str, Any]:
    """Encrypt `payload` (any JSON value) so that only the owner of the card `to` can read it.

    The message must be sent by `by`, to `to.subject`, with `message_id`, and with the reply address
    and the parent of `under`. Raises `CardInvalid`, or `InvalidMessage` for an invalid payload, id,
    or circumstance.
    """
    recipient_key = check_card(to)
    content = encode_payload(payload)
    private = X25519PrivateKey.generate()
    ephemeral = to_text(private.public_key().public_bytes_raw())
    parties = Parties(
        message_id=message_id,
        sender=by.subject,
        sender_key=by.public_key,
        recipient=to.subject,
        recipient_key=recipient_key,
    )
    context = context_text(parties, ephemeral, under)
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(from_text(recipient_key)))
    except ValueError:  # a low-order point, with which every shared secret is the same
        raise CardInvalid(f"the sealing key of {to.subject} is insecure (low order)") from None
    cipher, nonce = _cipher(shared, context)
    encrypted = to_text(cipher.encrypt(nonce, content, context))
    signature = by.sign(signed_text(context, encrypted))
    sealed = Sealed(
        waypost=MARK,
        by=by.public_key,
        ephemeral=ephemeral,
        sealed_at=under.sealed_at,
        reply_to=under.reply_to,
        parent=under.parent,
        content=encrypted,
        signature=signature,
    )
    fields: dict[str, Any] = msgspec.to_builtins(sealed)
    return fields


def unseal(
    payload: object, *, as_: Identity, sender: str, message_id: str, sender_key: str | None = None
) -> Any:
    """Decrypt a payload that `sender` sealed to `as_`, now or before a rotation of its keys.

    With `sender_key` (from the sender's card) the seal must be by that key; without it, see the
    top of this module for what a seal proves. The caller compares the seal's circumstances with the
    message. Raises `SealBroken`.
    """
    try:
        sealed = sealed_of(payload)
        contexts = {
            key: context_text(
                Parties(
                    message_id=message_id,
                    sender=sender,
                    sender_key=sealed.by,
                    recipient=as_.subject,
                    recipient_key=key,
                ),
                sealed.ephemeral,
                circumstances_of(sealed),
            )
            for key in as_.sealing_keys
        }
    except InvalidInput as problem:
        raise SealBroken(f"the seal cannot be read: {problem}") from None
    if sender_key is not None and sender_key != sealed.by:
        raise SealBroken(f"sealed with another key than that of {sender}")
    for key, context in contexts.items():
        if _verifies(sealed.by, sealed.signature, signed_text(context, sealed.content)):
            return _decrypt(sealed, as_, key, context)
    raise SealBroken(_BROKEN)


def sealer_of(payload: object) -> str:
    """Return the public key that a payload claims as its sealer; `unseal` verifies the claim.

    Raises `SealBroken` if the payload is not sealed.
    """
    try:
        return sealed_of(payload).by
    except InvalidInput as problem:
        raise SealBroken(f"the seal cannot be read: {problem}") from None


def check_card(card: Card) -> str:
    """Return the sealing key of `card` after verifying its owner's signature.

    Raises `CardInvalid`. That `card.public_key` is the key of `card.subject` is only the relay's
    claim: keep the key, and compare it later.
    """
    if card.sealing_key is None or card.sealing_signature is None:
        raise CardInvalid(f"{card.subject} has no sealing key: send it unsealed payloads only")
    try:
        from_text(card.sealing_key, KEY_BYTES)
        text = sealing_key_text(subject=card.subject, sealing_key=card.sealing_key)
        is_owners = _verifies(card.public_key, card.sealing_signature, text)
    except (InvalidInput, UnicodeEncodeError):
        is_owners = False
    if not is_owners:
        raise CardInvalid(f"the sealing key of {card.subject} is not signed by its owner")
    return card.sealing_key


def _cipher(shared: bytes, context: bytes) -> tuple[ChaCha20Poly1305, bytes]:
    """Return the cipher and nonce of one seal; the ephemeral key makes both unique."""
    length = KEY_BYTES + _NONCE_BYTES
    derived = HKDF(algorithm=SHA256(), length=length, salt=None, info=context).derive(shared)
    return ChaCha20Poly1305(derived[:KEY_BYTES]), derived[KEY_BYTES:]


def _decrypt(sealed: Sealed | SealedV1, as_: Identity, key: str, context: bytes) -> Any:
    try:
        ephemeral = X25519PublicKey.from_public_bytes(from_text(sealed.ephemeral))
        cipher, nonce = _cipher(as_.shared_secret(ephemeral, key), context)
        content = cipher.decrypt(nonce, from_text(sealed.content), context)
        if is_too_deep(content):
            raise SealBroken("the sealed payload is nested too deeply")
        return msgspec.json.decode(content)
    except (InvalidTag, ValueError, RecursionError):
        raise SealBroken(_BROKEN) from None


def _verifies(public_key: str, signature: str, text: bytes) -> bool:
    try:
        key = Ed25519PublicKey.from_public_bytes(signing_key_from(public_key))
        key.verify(from_text(signature, SIGNATURE_BYTES), text)
    except (InvalidSignature, ValueError):
        return False
    return True


_BROKEN = "the seal is broken: payload modified, or sealed for another message, sender or recipient"
