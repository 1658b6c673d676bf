"""Which journals to read: relays by name, and the directory or address of each journal.

Standard library only: executors import this before anything is unpacked there.
"""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from waypost.files import read_file
from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.files import PATTERN_CHARACTERS, local_path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

_PARTITIONS = "partitions"
_NODE_FILE = "node.json"
_NODE_FILE_MAX_BYTES = 4096


class JournalSource(NamedTuple):
    """A relay's name in the lake, and the directory or address of its journal.

    `replica`: it is a node's copy of the journal of a partition; others may have copies, too.
    """

    relay: str
    path: str
    replica: bool = False


def parse_sources(given: list[str]) -> list[JournalSource]:
    """Parse `DIR` or `NAME=DIR`, where DIR is a data directory or its `journal/`.

    Without a name, a relay is named after its data directory. DIR may also be the directory of a
    node on this machine: each partition is a relay then, named after the cluster (or NAME) and its
    number, and any number of nodes may be given. Raises `JournalUnusable`.
    """
    sources = [source for one in given for source in _parse(one)]
    copies = {source.relay for source in sources if source.replica}
    names = [source.relay for source in sources if not source.replica] + sorted(copies)
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise JournalUnusable(
            f"two journals have the same relay name {duplicates[0]!r}: name each with"
            " --journal NAME=DIR"
        )
    return sources


def require_local(sources: Iterable[JournalSource]) -> None:
    """Raise `JournalUnusable` for a path on this machine that has no journal."""
    for source in sources:
        if "://" not in source.path and not Path(local_path(source.path)).is_dir():
            raise no_journal(source.path)


def no_journal(path: str) -> JournalUnusable:
    """Return the error for a path without a journal."""
    return JournalUnusable(f"no journal at {path}: give the data directory of a relay")


def journal_path(given: str) -> str:
    """Return the journal of a data directory; `given` may also be the journal itself."""
    path = given.rstrip("/")
    return path if PurePosixPath(path).name == "journal" else f"{path}/journal"


def default_relay_name(journal: str) -> str:
    """Return the name of the data directory around `journal`, or "relay" if it has none."""
    # Without the whole path, the journals of all relays given as `.` would have one name.
    path = journal if "://" in journal else os.path.abspath(local_path(journal))
    return PurePosixPath(path).parent.name or "relay"


def _parse(given: str) -> list[JournalSource]:
    name, equals, path = given.partition("=")
    if not equals or not _NAME.fullmatch(name):
        name, path = "", given
    if not path or PATTERN_CHARACTERS.search(path):
        raise JournalUnusable(
            f"{given!r:.200} does not name one journal: give the data directory of a relay, without"
            " wildcards or brackets"
        )
    if partitions := _partitions_of(path):
        name = name or _cluster_name(path)
        return [
            JournalSource(
                f"{name}-{one.name}", f"{path.rstrip('/')}/{_PARTITIONS}/{one.name}/journal", True
            )
            for one in partitions
        ]
    journal = journal_path(path)
    name = name or default_relay_name(journal)
    if not _NAME.fullmatch(name):
        raise JournalUnusable(
            f"{name!r} is not a valid relay name: use --journal NAME={path.rstrip('/')}"
        )
    return [JournalSource(name, journal)]


def _partitions_of(path: str) -> list[Path]:
    """Return the directories of the partitions below that of a node; none if it is none."""
    directory = Path(local_path(path)) / _PARTITIONS
    if "://" in path or not directory.is_dir():
        return []
    found = (one for one in directory.iterdir() if one.name.isascii() and one.name.isdigit())
    return sorted(
        (one for one in found if (one / "journal").is_dir()), key=lambda one: int(one.name)
    )


def _cluster_name(path: str) -> str:
    """Return the name of the cluster that a node has written into its directory."""
    try:
        file = Path(local_path(path)) / _NODE_FILE
        name = str(json.loads(read_file(file, _NODE_FILE_MAX_BYTES))["cluster"])
    except (OSError, ValueError, TypeError, KeyError):
        name = ""
    if not _NAME.fullmatch(name):
        raise JournalUnusable(
            f"{path} is the directory of a node, and does not name its cluster: use"
            f" --journal CLUSTER={path.rstrip('/')}, with the same name for all its nodes"
        )
    return name
