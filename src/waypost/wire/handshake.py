"""How an agent proves who it is: what is signed, and how keys are written.

Rule 1  The relay gives a nonce; the agent signs it together with everything the signature is for.
Rule 2  A signature made for one relay says nothing to another: `origin`, the host and port the
        agent connected to, is part of it, and so is the purpose.
Rule 3  Keys, nonces and signatures are unpadded base64url.

Signing and checking are done where the keys are, by the client and the server.
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
    """What an agent signs to speak as `subject` at the relay `origin` ("host:port")."""
    return "\n".join(("waypost-auth-1", origin, nonce, subject, public_key)).encode()


def sealing_key_text(*, subject: str, sealing_key: str) -> bytes:
    """What an agent signs so that others may encrypt to its X25519 key `sealing_key`."""
    return "\n".join(("waypost-sealing-key-1", subject, sealing_key)).encode()


def validate_agent_subject(subject: str) -> str:
    """Return `subject` if an agent may speak as it; names beginning with '_' are the relay's own.

    Raises `InvalidSubject` or `InvalidMessage`.
    """
    validate_subject(subject)
    reject_reserved(subject)
    return subject


def to_text(raw: bytes) -> str:
    """Bytes as unpadded base64url."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_text(text: str, length: int | None = None) -> bytes:
    """The bytes of unpadded base64url; `InvalidMessage` unless there are `length` of them."""
    try:
        raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidMessage("expected unpadded base64url") from None
    if to_text(raw) != text:  # one way to write a key, or the same key would have many names
        raise InvalidMessage("expected unpadded base64url")
    if length is not None and len(raw) != length:
        raise InvalidMessage(f"expected {length} bytes of base64url, got {len(raw)}")
    return raw
