"""The keys of the agent that a command acts as at a served relay.

Rule 1  A key file named with `--key` is used. Otherwise an agent's keys are read from where
        'waypost keys new' saves them, if that file exists.
Rule 2  Secrets are read from files and from the environment, never from arguments, which every
        user of the machine can see.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from waypost.cli.options import RelayChoice
from waypost.cli.remote.operator_token import CredentialMissing
from waypost.client.errors import MissingExtra
from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import validate_subject

if TYPE_CHECKING:
    from waypost.client.identity import Identity


class Credentials:
    """The keys named by options. Files are read when they are needed."""

    def __init__(self, choice: RelayChoice) -> None:
        self._key = choice.key

    def identity(self, subject: str | None) -> "Identity | None":
        """Return the agent to act as; with `subject`, that agent. None without keys.

        Raises `KeyFileError`, and `InvalidInput` if the keys belong to another agent.
        """
        if subject is not None:
            validate_subject(subject)
        if self._key is None:
            default = None if subject is None else default_key_file(subject)
            return _load(default) if default is not None and default.is_file() else None
        identity = _load(self._key)
        if subject is not None and identity.subject != subject:
            raise InvalidInput(
                f"{self._key} holds the keys of {identity.subject}, not of {subject}:"
                " name the right file with --key"
            )
        return identity

    def require_identity(self, subject: str | None) -> "Identity":
        """Return the agent to act as. Raises `CredentialMissing`, and as `identity` does."""
        identity = self.identity(subject)
        if identity is None:
            raise keys_missing(subject)
        return identity

    def has_key_of(self, subject: str) -> bool:
        """Return whether `--key` names the keys of `subject`."""
        return self._key is not None and _load(self._key).subject == subject


def default_key_file(subject: str) -> Path:
    """Return the file in which 'waypost keys new' saves the keys of `subject` by default."""
    return Path.home() / ".config" / "waypost" / f"{subject}.key"


def keys_missing(subject: str | None) -> CredentialMissing:
    """Return the error for a command that needs the keys of an agent and has none."""
    if subject is None:
        return CredentialMissing(
            "no identity: give --sender SUBJECT or --key FILE; 'waypost keys new SUBJECT'"
            " creates keys"
        )
    return CredentialMissing(
        f"no keys of {subject} in {default_key_file(subject)}: create them with"
        f" 'waypost keys new {subject}', or name their file with --key (or WAYPOST_KEY)"
    )


def _load(path: Path) -> "Identity":
    if find_spec("cryptography") is None:
        raise MissingExtra("cryptography")
    from waypost.client.identity import Identity

    return Identity.load(path)
