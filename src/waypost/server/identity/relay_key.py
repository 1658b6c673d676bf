"""The relay's own key, with which it signs its journal.

It is in `<data>/relay-key`, made at the first start like the other secrets (see `tokens`). The
public key is the relay's name in its signatures: keep a copy where no editor of the journal can
reach it.
"""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from waypost.policy.errors import InvalidInput
from waypost.server.identity.errors import SecretUnusable
from waypost.server.identity.tokens import load_secret
from waypost.wire.handshake import KEY_BYTES, from_text, to_text

RELAY_KEY_FILE = "relay-key"


class RelayKey:
    """An Ed25519 key pair; `public_key` is base64url."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public_key = to_text(private.public_key().public_bytes_raw())

    @classmethod
    def open(cls, data_dir: Path) -> "RelayKey":
        """Use the key of a data directory, created at the first start. Raises `SecretUnusable`."""
        path = data_dir / RELAY_KEY_FILE
        try:
            seed = from_text(load_secret(path), KEY_BYTES)
        except InvalidInput:
            raise SecretUnusable(
                f"{path} does not contain a key: expected {KEY_BYTES} bytes of base64url; restore"
                " it from a copy, or delete it and restart to create another"
            ) from None
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def load(cls, data_dir: Path) -> "RelayKey":
        """Use the key of a data directory that was served before. Raises `SecretUnusable`."""
        if not (data_dir / RELAY_KEY_FILE).exists():
            raise SecretUnusable(
                f"{data_dir} has no {RELAY_KEY_FILE}: 'waypost serve' creates it at its first start"
            )
        return cls.open(data_dir)

    def sign(self, text: bytes) -> str:
        """Return the signature of a text, as base64url."""
        return to_text(self._private.sign(text))
