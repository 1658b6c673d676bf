"""Checking Ed25519 signatures."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def holds(public_key: bytes, signature: bytes, text: bytes) -> bool:
    """Whether `signature` over `text` was made with the key behind `public_key` (32 bytes)."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
