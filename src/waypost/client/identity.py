"""An agent's keys: for authentication, and for encryption to the agent.

Rule 1  Private keys leave this object only into its key file, which only the owner can read.
Rule 2  Keys that replace others keep the earlier sealing keys, so that what was sealed to those
        still opens.
Rule 3  Every signed text states its purpose; a nonce is signed only if it has the right format.

WaypostError
└── KeyFileError
    ├── KeyFileExposed      other users can read or write the file
    ├── KeyFileExists       the file exists, and overwriting was not requested
    └── KeyFileInvalid      the file cannot be read, or is not a key file
"""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from waypost.files import ExposedFile, UnsuitableFile, read_secret
from waypost.policy.errors import InvalidInput, WaypostError
from waypost.wire import frames, handshake
from waypost.wire.cards import AgentCard
from waypost.wire.handshake import KEY_BYTES, NONCE_BYTES, from_text, to_text
from waypost.wire.sealing import Card

EARLIER_KEYS_MAX = 8
"""Sealing keys from before the last rotations; the oldest is dropped."""


class KeyFileError(WaypostError):
    """A key file cannot be used."""


class KeyFileExposed(KeyFileError):
    """Other users can read or write the file."""


class KeyFileExists(KeyFileError):
    """The file exists; overwritten keys cannot be recovered."""


class KeyFileInvalid(KeyFileError):
    """The file cannot be read, or is not a key file."""


class _KeyFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a key file: the private keys, in base64url."""

    version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    subject: str
    signing_key: str
    sealing_key: str
    earlier_sealing_keys: list[str] | msgspec.UnsetType = msgspec.UNSET


class Identity:
    """A subject and its keys: Ed25519 for signing, X25519 for encryption to it.

    `earlier` are sealing keys from before rotations, the newest first.
    """

    def __init__(
        self,
        subject: str,
        signing: Ed25519PrivateKey,
        sealing: X25519PrivateKey,
        earlier: Sequence[X25519PrivateKey] = (),
    ) -> None:
        self._signing = signing
        self._sealing = {
            to_text(one.public_key().public_bytes_raw()): one for one in (sealing, *earlier)
        }
        self.file: Path | None = None
        """The key file that it was loaded from or saved to."""
        self.subject = handshake.validate_agent_subject(subject)
        self.public_key = to_text(signing.public_key().public_bytes_raw())
        self.sealing_keys = tuple(self._sealing)
        """The public sealing keys, the present one first."""
        self.sealing_key = self.sealing_keys[0]
        text = handshake.sealing_key_text(subject=subject, sealing_key=self.sealing_key)
        self.card = Card(
            subject=subject,
            public_key=self.public_key,
            sealing_key=self.sealing_key,
            sealing_signature=self.sign(text),
        )

    @classmethod
    def new(cls, subject: str) -> "Identity":
        """Return an identity with new random keys. Raises `InvalidInput` for a reserved or invalid
        subject."""
        return cls(subject, Ed25519PrivateKey.generate(), X25519PrivateKey.generate())

    def successor(self) -> "Identity":
        """Return an identity with new random keys that also opens what was sealed to this one."""
        signing, sealing = Ed25519PrivateKey.generate(), X25519PrivateKey.generate()
        earlier = list(self._sealing.values())[:EARLIER_KEYS_MAX]
        return Identity(self.subject, signing, sealing, earlier)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Identity":
        """Load an identity from a file that `save` wrote.

        Raises `KeyFileExposed` (with the command to fix it) or `KeyFileInvalid`.
        """
        content = _read(Path(path))
        try:
            keys = msgspec.json.decode(content, type=_KeyFile)
            signing = Ed25519PrivateKey.from_private_bytes(from_text(keys.signing_key, KEY_BYTES))
            earlier = keys.earlier_sealing_keys or []
            sealing, *others = (
                X25519PrivateKey.from_private_bytes(from_text(one, KEY_BYTES))
                for one in (keys.sealing_key, *earlier[:EARLIER_KEYS_MAX])
            )
            identity = cls(keys.subject, signing, sealing, others)
        except (msgspec.DecodeError, UnicodeDecodeError, InvalidInput) as problem:
            raise KeyFileInvalid(f"{path} is not a key file: {problem}") from None
        identity.file = Path(path)
        return identity

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the keys to `path`, readable by the owner only; synced to disk on return.

        Creates missing directories. Raises `KeyFileExists` unless `overwrite`, and `KeyFileError`
        if the file cannot be written.
        """
        sealing, *earlier = (to_text(one.private_bytes_raw()) for one in self._sealing.values())
        keys = _KeyFile(
            subject=self.subject,
            signing_key=to_text(self._signing.private_bytes_raw()),
            sealing_key=sealing,
            earlier_sealing_keys=earlier or msgspec.UNSET,
        )
        content = msgspec.json.format(msgspec.json.encode(keys), indent=2) + b"\n"
        try:
            _write(Path(path), content, overwrite=overwrite)
        except OSError as problem:
            raise KeyFileError(f"cannot write {path}: {problem.strerror}") from None
        self.file = Path(path)

    def prove(
        self,
        nonce: str,
        origin: str,
        *,
        receive: Literal["push", "pull"] = "push",
        shared: bool = False,
        prefetch: int = 1,
        card: AgentCard | None = None,
    ) -> frames.Auth:
        """Return the answer to a challenge of the relay at `origin`, its "host:port".

        Raises `InvalidMessage` if `nonce` is not a nonce.
        """
        from_text(nonce, NONCE_BYTES)
        text = handshake.proof_text(
            origin=origin.lower(), nonce=nonce, subject=self.subject, public_key=self.public_key
        )
        return frames.Auth(
            subject=self.subject,
            public_key=self.public_key,
            signature=self.sign(text),
            receive=receive,
            shared=shared,
            prefetch=prefetch,
            sealing_key=self.card.sealing_key,
            sealing_signature=self.card.sealing_signature,
            card=card,
        )

    def prove_rotation(self, nonce: str, origin: str, new: "Identity") -> dict[str, str | None]:
        """Return the request that moves this subject to the keys of `new`, signed by both.

        Raises `InvalidMessage` if `nonce` is not a nonce, or `new` has another subject.
        """
        from_text(nonce, NONCE_BYTES)
        if new.subject != self.subject:
            raise InvalidInput(f"the new keys are of {new.subject}, not of {self.subject}")
        text = handshake.rotation_text(
            origin=origin.lower(),
            nonce=nonce,
            subject=self.subject,
            public_key=self.public_key,
            new_public_key=new.public_key,
        )
        return {
            "subject": self.subject,
            "public_key": self.public_key,
            "new_public_key": new.public_key,
            "nonce": nonce,
            "signature": self.sign(text),
            "new_signature": new.sign(text),
            "sealing_key": new.card.sealing_key,
            "sealing_signature": new.card.sealing_signature,
        }

    def sign(self, text: bytes) -> str:
        """Return the Ed25519 signature over `text`, which should state its purpose; base64url."""
        return to_text(self._signing.sign(text))

    def shared_secret(self, with_key: X25519PublicKey, sealing_key: str | None = None) -> bytes:
        """Return the X25519 secret that one of `sealing_keys`, or the present one, shares with
        `with_key`. Raises `ValueError` for a low-order key."""
        return self._sealing[sealing_key or self.sealing_key].exchange(with_key)

    def __repr__(self) -> str:
        return f"<Identity {self.subject} {self.public_key}>"


def _read(path: Path) -> bytes:
    try:
        return read_secret(path)
    except ExposedFile:
        raise KeyFileExposed(
            f"other users can read or write {path}, and its keys allow them to act as this"
            f" agent: run chmod 600 {path}, or create new keys if they may have been copied"
        ) from None
    except UnsuitableFile as problem:
        raise KeyFileInvalid(f"{path} is not a key file: {problem.strerror}") from None
    except FileNotFoundError as problem:
        raise KeyFileInvalid(
            f"cannot read {path}: {problem.strerror}; 'waypost keys new SUBJECT' creates keys"
        ) from None
    except OSError as problem:
        raise KeyFileInvalid(f"cannot read {path}: {problem.strerror}") from None


def _write(path: Path, content: bytes, *, overwrite: bool) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp") if overwrite else path
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise KeyFileExists(
            f"{path} exists, and overwritten keys cannot be recovered:"
            " choose another file, or move this one away"
        ) from None
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        if overwrite:
            os.replace(target, path)
    except OSError:
        target.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
