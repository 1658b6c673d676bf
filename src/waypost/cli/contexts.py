"""Contexts: named relays with their credentials, so that commands need no `--url`.

They are in `~/.config/waypost/contexts.json`, which holds addresses and names of files, no secrets;
it still is for its owner only, because a changed address would receive an operator's token.
"""

import re
from pathlib import Path

import msgspec

from waypost.files import read_secret
from waypost.policy.errors import InvalidInput, WaypostError
from waypost.relay.data_dir import replace_file

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE_MAX_BYTES = 256 * 1024


class ContextError(WaypostError):
    """The file of contexts cannot be used, or has no such context."""


class RelayContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A relay behind a URL, and the files of the credentials to use there."""

    url: str
    key: str | None = None
    operator_token_file: str | None = None


class Contexts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All contexts by name, and the name of the one in use; empty if there is none."""

    current: str = ""
    contexts: dict[str, RelayContext] = {}

    def get(self, name: str) -> RelayContext:
        """Return a context. Raises `ContextError`."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise ContextError(
                f"no context {name!r}: known are {known}; 'waypost context add NAME URL' adds one"
            )
        return self.contexts[name]


def check_name(name: str) -> str:
    """Return a valid name. Raises `InvalidInput`."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r:.80} is no name of a context: use up to 64 letters, digits, '.', '_' and '-'"
        )
    return name


def contexts_file() -> Path:
    """Return the path of the file."""
    return Path.home() / ".config" / "waypost" / "contexts.json"


def read_contexts() -> Contexts:
    """Read the file; without one, there are no contexts. Raises `ContextError`."""
    file = contexts_file()
    try:
        return msgspec.json.decode(read_secret(file, _FILE_MAX_BYTES), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, msgspec.DecodeError, RuntimeError) as problem:
        raise ContextError(
            f"cannot read the contexts in {file}: {problem}; mend or delete that file"
        ) from None


def write_contexts(contexts: Contexts) -> None:
    """Replace the file. Raises `ContextError`."""
    file = contexts_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
    except OSError as problem:
        raise ContextError(f"cannot write {file}: {problem.strerror}") from None


def context_in_use() -> RelayContext | None:
    """Return the context in use, or None. Raises `ContextError`."""
    known = read_contexts()
    return known.get(known.current) if known.current else None
