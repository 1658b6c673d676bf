"""End-to-end encryption: what a sealed payload looks like, and exactly which bytes it covers.

Rule 1  A seal is for one message: its id, sender, recipient and all keys are in the `context`.
Rule 2  The context is additional data of the encryption and part of what is signed, so nothing
        in it can be exchanged, and nobody can sign another's ciphertext as their own.
Rule 3  The relay sees header, keys and length of a sealed payload, never its content.

The parts of a context cannot hold a line break, so that two contexts never read the same.
Encrypting, signing and checking are done where the keys are, by the client.
"""

from typing import Literal

import msgspec

from waypost.policy.errors import InvalidMessage
from waypost.policy.subjects import validate_subject
from waypost.wire.handshake import KEY_BYTES, SIGNATURE_BYTES, from_text
from waypost.wire.identifiers import validate_message_id

MARK = "sealed-1"


class Card(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What others need to encrypt to `subject`, in base64url.

    `sealing_signature`, made with the key behind `public_key` over `handshake.sealing_key_text`,
    shows that the sealing key belongs to the subject. Both are None for an agent that takes
    nothing sealed.
    """

    subject: str
    public_key: str
    sealing_key: str | None = None
    sealing_signature: str | None = None


class Sealed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A payload that only its recipient can read. All but the mark is base64url.

    `by` is the sender's Ed25519 key, `ephemeral` an X25519 key made for this payload alone,
    `content` the encrypted JSON with its tag, `signature` the sender's over `signed_text`.
    """

    waypost: Literal["sealed-1"] = "sealed-1"
    by: str
    ephemeral: str
    content: str
    signature: str


class Parties(msgspec.Struct, frozen=True, kw_only=True):
    """Who a seal is between, and for which message."""

    message_id: str
    sender: str
    sender_key: str
    recipient: str
    recipient_key: str


def context_text(parties: Parties, ephemeral: str) -> bytes:
    """The additional data of the encryption, and the information its key is derived with.

    Raises `InvalidMessage` or `InvalidSubject` for a part that is not what it should be.
    """
    validate_message_id(parties.message_id)
    validate_subject(parties.sender)
    validate_subject(parties.recipient)
    for key in (parties.sender_key, parties.recipient_key, ephemeral):
        from_text(key, KEY_BYTES)
    return "\n".join(
        (
            "waypost-sealed-1",
            parties.message_id,
            parties.sender,
            parties.sender_key,
            parties.recipient,
            parties.recipient_key,
            ephemeral,
        )
    ).encode()


def signed_text(context: bytes, content: str) -> bytes:
    """What the sender signs: the context and the encrypted content."""
    return context + b"\n" + content.encode()


def is_sealed(payload: object) -> bool:
    """Whether `payload` says that it is sealed; whether the seal holds is not known yet."""
    return isinstance(payload, dict) and payload.get("waypost") == MARK


def sealed_of(payload: object) -> Sealed:
    """A payload as `Sealed`, its parts of the right kind and length, or `InvalidMessage`."""
    try:
        sealed = msgspec.convert(payload, Sealed)
    except msgspec.ValidationError as problem:
        raise InvalidMessage(f"not a sealed payload: {problem}") from None
    from_text(sealed.by, KEY_BYTES)
    from_text(sealed.ephemeral, KEY_BYTES)
    from_text(sealed.content)
    from_text(sealed.signature, SIGNATURE_BYTES)
    return sealed
