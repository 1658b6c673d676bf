"""Authentication of an agent: the text it signs, and the encoding of keys.

Rule 1  The relay sends a nonce; the agent signs it together with everything the signature is for.
Rule 2  A signature for one relay is worthless to another: it covers the purpose and `origin`, the
        host and port the agent connected to.
Rule 3  Keys, nonces and signatures are unpadded base64url.
Rule 4  A signing key must not have small order: for such a key there are signatures that are valid
        for any text. Each key has one encoding.

The client signs and the server verifies; this module holds no keys.
"""

import base64
import binascii

from waypost.policy.errors import InvalidMessage
from waypost.policy.reserved_names import reject_reserved
from waypost.policy.subjects import validate_subject

KEY_BYTES = 32
SIGNATURE_BYTES = 64
NONCE_BYTES = 32


_FIELD_PRIME = 2**255 - 19
_Y_OF_ORDER_8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL_ORDER_Y = {
    0,
    1,
    _FIELD_PRIME - 1,
    _FIELD_PRIME - _Y_OF_ORDER_8,
    _Y_OF_ORDER_8,
}
"""The y coordinates of the eight points of Ed25519 whose order is 1, 2, 4 or 8."""


def proof_text(*, origin: str, nonce: str, subject: str, public_key: str) -> bytes:
    """Return the text an agent signs to authenticate as `subject` at the relay `origin`
    ("host:port")."""
    return "\n".join(("waypost-auth-1", origin, nonce, subject, public_key)).encode()


def rotation_text(
    *, origin: str, nonce: str, subject: str, public_key: str, new_public_key: str
) -> bytes:
    """Return the text that both keys sign to move `subject` from one to the other."""
    parts = ("waypost-rotate-1", origin, nonce, subject, public_key, new_public_key)
    return "\n".join(parts).encode()


def sealing_key_text(*, subject: str, sealing_key: str) -> bytes:
    """Return the text an agent signs to publish its X25519 key `sealing_key` for encryption."""
    return "\n".join(("waypost-sealing-key-1", subject, sealing_key)).encode()


def checkpoint_text(*, public_key: str, seq: int, at_us: int, head: str) -> bytes:
    """Return the text a relay signs at event `seq`, to confirm its journal up to the batch with
    the hash `head`."""
    parts = ("waypost-checkpoint-1", public_key, str(seq), str(at_us), head)
    return "\n".join(parts).encode()


def validate_agent_subject(subject: str) -> str:
    """Return `subject` if an agent may use it; names that begin with '_' are reserved.

    Raises `InvalidSubject` or `InvalidMessage`.
    """
    validate_subject(subject)
    reject_reserved(subject)
    return subject


def to_text(raw: bytes) -> str:
    """Encode bytes as unpadded base64url."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_text(text: str, length: int | None = None) -> bytes:
    """Decode unpadded base64url. Raises `InvalidMessage` unless it is `length` bytes."""
    try:
        raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidMessage("expected unpadded base64url") from None
    if to_text(raw) != text:  # accept one spelling only: keys are compared as text
        raise InvalidMessage("expected unpadded base64url")
    if length is not None and len(raw) != length:
        raise InvalidMessage(f"expected {length} bytes of base64url, got {len(raw)}")
    return raw


def signing_key_from(text: str) -> bytes:
    """Decode an Ed25519 public key. Raises `InvalidMessage` unless it is 32 bytes of base64url, and
    for a key of small order or in a second encoding."""
    try:
        raw = from_text(text, KEY_BYTES)
    except InvalidMessage as problem:
        raise InvalidMessage(
            f"{text!r:.60} is not a public key ({problem}): 'waypost keys show' prints it"
        ) from None
    y = int.from_bytes(raw, "little") & ~(1 << 255)  # the highest bit is the sign of x
    if y >= _FIELD_PRIME or y in _SMALL_ORDER_Y:
        raise InvalidMessage("insecure Ed25519 key (small order): create a new one")
    return raw
