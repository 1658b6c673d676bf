"""Authentication of an agent: the text it signs, and the encoding of keys.

Rule 1  The relay sends a nonce; the agent signs it together with everything the signature is for.
Rule 2  A signature for one relay is worthless to another: it covers the purpose and `origin`, the
        host and port the agent connected to.
Rule 3  Keys, nonces and signatures are unpadded base64url.

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


def proof_text(*, origin: str, nonce: str, subject: str, public_key: str) -> bytes:
    """Return the text an agent signs to authenticate as `subject` at the relay `origin`
    ("host:port")."""
    return "\n".join(("waypost-auth-1", origin, nonce, subject, public_key)).encode()


def sealing_key_text(*, subject: str, sealing_key: str) -> bytes:
    """Return the text an agent signs to publish its X25519 key `sealing_key` for encryption."""
    return "\n".join(("waypost-sealing-key-1", subject, sealing_key)).encode()


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
