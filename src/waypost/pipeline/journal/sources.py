"""Which journals to read: relays by name, and the directory or address of each journal.

Standard library only: executors import this before anything is unpacked there.
"""

import re
from pathlib import PurePosixPath
from typing import NamedTuple

from waypost.pipeline.errors import JournalUnusable

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_UNUSABLE = re.compile(r"[*?\[\]{}\x00-\x1f]")
"""Characters with which Spark reads other directories than the one of that name, or none."""


class JournalSource(NamedTuple):
    """A relay's name in the lake, and the directory or address of its journal."""

    relay: str
    path: str


def parse_sources(given: list[str]) -> list[JournalSource]:
    """Parse `DIR` or `NAME=DIR`, where DIR is a data directory or its `journal/`.

    Without a name, a relay is named after its data directory. Raises `JournalUnusable`.
    """
    sources = [_parse(one) for one in given]
    names = [source.relay for source in sources]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise JournalUnusable(
            f"two journals have the same relay name {duplicates[0]!r}: name each with"
            " --journal NAME=DIR"
        )
    return sources


def journal_path(given: str) -> str:
    """Return the journal of a data directory; `given` may also be the journal itself."""
    path = given.rstrip("/")
    return path if PurePosixPath(path).name == "journal" else f"{path}/journal"


def default_relay_name(journal: str) -> str:
    """Return the name of the data directory around `journal`."""
    return PurePosixPath(journal).parent.name or "relay"


def _parse(given: str) -> JournalSource:
    name, equals, path = given.partition("=")
    if not equals or not _NAME.fullmatch(name):
        name, path = "", given
    if not path or _UNUSABLE.search(path):
        raise JournalUnusable(
            f"{given!r:.200} does not name one journal: give the data directory of a relay, without"
            " wildcards or brackets"
        )
    journal = journal_path(path)
    name = name or default_relay_name(journal)
    if not _NAME.fullmatch(name):
        raise JournalUnusable(
            f"{name!r} is not a valid relay name: use --journal NAME={path.rstrip('/')}"
        )
    return JournalSource(name, journal)
