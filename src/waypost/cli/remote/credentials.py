"""As whom the command line speaks to a served relay: an agent with its keys, or the operator.

Rule 1  Keys that are named (`--key`) count. Otherwise an agent's keys are where 'waypost keys new'
        puts them, if they are there.
Rule 2  Secrets are read from files and from the environment, never from arguments, which everyone
        on the machine can see.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from waypost.cli.options import Where
from waypost.client.errors import MissingExtra
from waypost.policy.errors import InvalidInput, WaypostError
from waypost.policy.subjects import validate_subject

if TYPE_CHECKING:
    from waypost.client.identity import Identity


class CredentialMissing(WaypostError):
    """Nobody said, or could prove, who is asking."""


class Credentials:
    """What was given in `where` and in the environment. Files are read when they are needed."""

    def __init__(self, where: Where) -> None:
        self._key = where.key
        self._token_file = where.operator_token_file

    def identity(self, subject: str | None) -> "Identity | None":
        """The agent to be; with `subject`, that one and no other. None without keys.

        Raises `KeyFileError`, and `InvalidInput` if the keys are of somebody else.
        """
        if subject is not None:
            validate_subject(subject)
        if self._key is None:
            usual = None if subject is None else usual_key_file(subject)
            return _load(usual) if usual is not None and usual.is_file() else None
        identity = _load(self._key)
        if subject is not None and identity.subject != subject:
            raise InvalidInput(
                f"{self._key} holds the keys of {identity.subject}, not of {subject}:"
                " name the right file with --key"
            )
        return identity

    def require_identity(self, subject: str | None) -> "Identity":
        """The agent to be. Raises `CredentialMissing` without keys, and as `identity` does."""
        identity = self.identity(subject)
        if identity is None:
            raise no_keys(subject)
        return identity

    def names_key_of(self, subject: str) -> bool:
        """Whether keys were named, and they are those of `subject`."""
        return self._key is not None and _load(self._key).subject == subject

    def operator_token(self) -> str | None:
        """The operator's token, if there is one. Raises `CredentialMissing` for a bad file."""
        if self._token_file is None:
            return os.environ.get("WAYPOST_OPERATOR_TOKEN", "").strip() or None
        try:
            token = self._token_file.read_text(encoding="ascii").strip()
        except OSError as problem:
            raise CredentialMissing(
                f"cannot read the operator's token in {self._token_file}: {problem.strerror}"
            ) from None
        except UnicodeDecodeError:
            token = ""
        if not token or len(token.split()) != 1:
            raise CredentialMissing(
                f"{self._token_file} holds no token: expected the file operator-token of the"
                " relay's data directory"
            )
        return token


def usual_key_file(subject: str) -> Path:
    """Where 'waypost keys new' puts the keys of `subject` unless told otherwise."""
    return Path.home() / ".config" / "waypost" / f"{subject}.key"


def no_keys(subject: str | None) -> CredentialMissing:
    """What to say to whoever has to be an agent and is none."""
    if subject is None:
        return CredentialMissing(
            "say who you are, with --sender SUBJECT or --key FILE; 'waypost keys new SUBJECT'"
            " makes keys"
        )
    return CredentialMissing(
        f"there are no keys of {subject} in {usual_key_file(subject)}: make them with"
        f" 'waypost keys new {subject}', or name their file with --key (or WAYPOST_KEY)"
    )


def _load(path: Path) -> "Identity":
    if find_spec("cryptography") is None:
        raise MissingExtra("cryptography")
    from waypost.client.identity import Identity

    return Identity.load(path)
