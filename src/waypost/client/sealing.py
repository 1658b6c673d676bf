"""Payloads that only their recipient can read, and that only their sender can have written.

An ephemeral X25519 key meets the recipient's sealing key; HKDF-SHA256 makes of it a key for
ChaCha20-Poly1305 that is used once. The sender signs the whole. `wire.sealing` says which bytes.

What a seal tells: the content was written, for this message and this recipient, by whoever holds
`sealer_of(payload)`. That this key is the sender's you know from the sender's card, or because
you have seen it before: pass it as `sender_key`. The sealing keys are long-lived: whoever steals
a recipient's key file can read what was sealed to it before.

WaypostError
├── SealBroken      changed on the way, or made for another message, sender or recipient
└── CardInvalid     the card holds no sealing key that its owner signed
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
    to_text,
)
from waypost.wire.payloads import encode_payload
from waypost.wire.sealing import (
    Card,
    Parties,
    Sealed,
    context_text,
    is_sealed,
    sealed_of,
    signed_text,
)

__all__ = ["CardInvalid", "SealBroken", "check_card", "is_sealed", "seal", "sealer_of", "unseal"]

_NONCE_BYTES = 12


class SealBroken(WaypostError):
    """Changed on the way, or made for another message, sender or recipient."""


class CardInvalid(WaypostError):
    """The card holds no sealing key that its owner signed."""


def seal(payload: object, *, to: Card, by: Identity, message_id: str) -> dict[str, Any]:
    """`payload` (anything JSON can hold) so that only the owner of the card `to` can read it.

    The message must be sent by `by`, to `to.subject`, with `message_id`. Raises `CardInvalid`, or
    `InvalidMessage` if the payload or the id cannot be taken.
    """
    recipient_key = check_card(to)
    content = encode_payload(payload)
    once = X25519PrivateKey.generate()
    ephemeral = to_text(once.public_key().public_bytes_raw())
    parties = Parties(
        message_id=message_id,
        sender=by.subject,
        sender_key=by.public_key,
        recipient=to.subject,
        recipient_key=recipient_key,
    )
    context = context_text(parties, ephemeral)
    try:
        shared = once.exchange(X25519PublicKey.from_public_bytes(from_text(recipient_key)))
    except ValueError:  # one of the few keys with which every secret is the same
        raise CardInvalid(f"the sealing key of {to.subject} keeps no secret") from None
    cipher, nonce = _cipher(shared, context)
    encrypted = to_text(cipher.encrypt(nonce, content, context))
    signature = by.sign(signed_text(context, encrypted))
    return msgspec.structs.asdict(
        Sealed(by=by.public_key, ephemeral=ephemeral, content=encrypted, signature=signature)
    )


def unseal(
    payload: object, *, as_: Identity, sender: str, message_id: str, sender_key: str | None = None
) -> Any:
    """What was sealed for `as_` by `sender` in the message `message_id`.

    With `sender_key` (from the sender's card) the seal must be by that key; without, see the top
    of this module for what it tells. Raises `SealBroken`.
    """
    try:
        sealed = sealed_of(payload)
        parties = Parties(
            message_id=message_id,
            sender=sender,
            sender_key=sealed.by,
            recipient=as_.subject,
            recipient_key=as_.sealing_key,
        )
        context = context_text(parties, sealed.ephemeral)
    except InvalidInput as problem:
        raise SealBroken(f"the seal cannot be read: {problem}") from None
    if sender_key is not None and sender_key != sealed.by:
        raise SealBroken(f"sealed by another key than that of {sender}")
    text = signed_text(context, sealed.content)
    if not _holds(sealed.by, sealed.signature, text):
        raise SealBroken(_BROKEN)
    return _decrypt(sealed, as_, context)


def sealer_of(payload: object) -> str:
    """The public key a sealed payload says it is by; true if `unseal` takes it. `SealBroken` if
    it is not sealed at all."""
    try:
        return sealed_of(payload).by
    except InvalidInput as problem:
        raise SealBroken(f"the seal cannot be read: {problem}") from None


def check_card(card: Card) -> str:
    """The sealing key of `card`, if its owner signed it; else `CardInvalid`.

    Whether `card.public_key` is the key of `card.subject` only the relay says, unless you have
    seen it before: keep it, and compare.
    """
    if card.sealing_key is None or card.sealing_signature is None:
        raise CardInvalid(f"{card.subject} has no sealing key: send it unsealed, or not at all")
    try:
        from_text(card.sealing_key, KEY_BYTES)
        text = sealing_key_text(subject=card.subject, sealing_key=card.sealing_key)
        is_owners = _holds(card.public_key, card.sealing_signature, text)
    except (InvalidInput, UnicodeEncodeError):
        is_owners = False
    if not is_owners:
        raise CardInvalid(f"the sealing key of {card.subject} is not signed by its owner")
    return card.sealing_key


def _cipher(shared: bytes, context: bytes) -> tuple[ChaCha20Poly1305, bytes]:
    """The cipher and nonce of one seal; the ephemeral key makes both of them new each time."""
    length = KEY_BYTES + _NONCE_BYTES
    derived = HKDF(algorithm=SHA256(), length=length, salt=None, info=context).derive(shared)
    return ChaCha20Poly1305(derived[:KEY_BYTES]), derived[KEY_BYTES:]


def _decrypt(sealed: Sealed, as_: Identity, context: bytes) -> Any:
    try:
        ephemeral = X25519PublicKey.from_public_bytes(from_text(sealed.ephemeral))
        cipher, nonce = _cipher(as_.shared_secret(ephemeral), context)
        content = cipher.decrypt(nonce, from_text(sealed.content), context)
        return msgspec.json.decode(content)
    except (InvalidTag, ValueError, RecursionError):
        raise SealBroken(_BROKEN) from None


def _holds(public_key: str, signature: str, text: bytes) -> bool:
    try:
        key = Ed25519PublicKey.from_public_bytes(from_text(public_key, KEY_BYTES))
        key.verify(from_text(signature, SIGNATURE_BYTES), text)
    except (InvalidSignature, ValueError):
        return False
    return True


_BROKEN = "the seal is broken: changed on the way, or made for another message, sender or recipient"
