"""End-to-end encryption: the format of a sealed payload, and the bytes it covers.

Rule 1  A seal is for one message: its id, sender, recipient, reply address, parent, time and all
        keys are in the `context`.
Rule 2  The context is additional data of the encryption and part of the signed text, so none of it
        can be replaced, and no sender can sign another's ciphertext as its own.
Rule 3  The relay sees header, keys and length of a sealed payload, never its content.

The parts of a context cannot hold a line break, so two different contexts never have the same text.
Version 1 bound neither reply address nor parent nor time. It is read, and no longer written.
The client encrypts, signs and verifies; this module holds no keys.
"""

from typing import Annotated, Final, Literal

import msgspec

from waypost.policy.bounds import number_max
from waypost.policy.errors import InvalidMessage
from waypost.policy.subjects import validate_subject
from waypost.wire.handshake import KEY_BYTES, SIGNATURE_BYTES, from_text, signing_key_from
from waypost.wire.identifiers import validate_message_id

MARK: Final = "sealed-2"
MARK_V1: Final = "sealed-1"


class Card(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The public keys for encrypting to `subject`, in base64url.

    `sealing_signature`, by `public_key` over `handshake.sealing_key_text`, proves that the sealing
    key belongs to the subject. Both are None for an agent without a sealing key.
    """

    subject: str
    public_key: str
    sealing_key: str | None = None
    sealing_signature: str | None = None


class Sealed(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A payload that only its recipient can read. Keys, content and signature are base64url.

    `by` is the sender's Ed25519 key, `ephemeral` an X25519 key for this payload alone, `content`
    the encrypted JSON with its tag, `signature` the sender's signature over `signed_text`.
    `sealed_at` is the sender's time in ms since the epoch; `reply_to` and `parent` are those of the
    message.
    """

    waypost: Literal["sealed-2"]
    by: str
    ephemeral: str
    sealed_at: Annotated[int, msgspec.Meta(ge=0, le=number_max)]
    reply_to: str | None = None
    parent: str | None = None
    content: str
    signature: str


class SealedV1(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A payload sealed by version 1."""

    waypost: Literal["sealed-1"]
    by: str
    ephemeral: str
    content: str
    signature: str


class Parties(msgspec.Struct, frozen=True, kw_only=True):
    """Sender and recipient of a seal, and its message."""

    message_id: str
    sender: str
    sender_key: str
    recipient: str
    recipient_key: str


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """When a payload was sealed (ms since the epoch), and what else its message said."""

    sealed_at: int
    reply_to: str | None = None
    parent: str | None = None


def context_text(parties: Parties, ephemeral: str, circumstances: Circumstances | None) -> bytes:
    """Return the additional data of the encryption, which is also the info of key derivation.

    Without `circumstances` it is that of version 1. Raises `InvalidMessage` or `InvalidSubject` for
    an invalid part.
    """
    validate_message_id(parties.message_id)
    validate_subject(parties.sender)
    validate_subject(parties.recipient)
    for key in (parties.sender_key, parties.recipient_key, ephemeral):
        from_text(key, KEY_BYTES)
    lines = [
        f"waypost-{MARK if circumstances is not None else MARK_V1}",
        parties.message_id,
        parties.sender,
        parties.sender_key,
        parties.recipient,
        parties.recipient_key,
        ephemeral,
    ]
    if circumstances is not None:
        if circumstances.reply_to is not None:
            validate_subject(circumstances.reply_to)
        if circumstances.parent is not None:
            validate_message_id(circumstances.parent)
        lines += [
            str(circumstances.sealed_at),
            circumstances.reply_to or "",
            circumstances.parent or "",
        ]
    return "\n".join(lines).encode()


def signed_text(context: bytes, content: str) -> bytes:
    """Return the text the sender signs: the context and the encrypted content."""
    return context + b"\n" + content.encode()


def is_sealed(payload: object) -> bool:
    """Return whether `payload` is marked as sealed; the seal is not verified here."""
    return isinstance(payload, dict) and payload.get("waypost") in (MARK, MARK_V1)


def sealed_of(payload: object) -> Sealed | SealedV1:
    """Convert a payload to `Sealed`, checking types and lengths. Raises `InvalidMessage`."""
    sealed: Sealed | SealedV1
    try:
        if isinstance(payload, dict) and payload.get("waypost") == MARK_V1:
            sealed = msgspec.convert(payload, SealedV1)
        else:
            sealed = msgspec.convert(payload, Sealed)
    except msgspec.ValidationError as problem:
        raise InvalidMessage(f"not a sealed payload: {problem}") from None
    signing_key_from(sealed.by)
    from_text(sealed.ephemeral, KEY_BYTES)
    from_text(sealed.content)
    from_text(sealed.signature, SIGNATURE_BYTES)
    return sealed


def circumstances_of(sealed: Sealed | SealedV1) -> Circumstances | None:
    """Return what a seal says about its message; None for version 1."""
    if isinstance(sealed, SealedV1):
        return None
    return Circumstances(sealed_at=sealed.sealed_at, reply_to=sealed.reply_to, parent=sealed.parent)
