"""The directory of agents: who may see whom, and which name a sender probably meant.

Rule 1  `open`: every agent sees every agent. `contacts`: an agent sees those with which it has
        exchanged messages in both directions. `closed`: agents see none. An agent always sees
        itself, the operator all.
Rule 2  What a send reports about a name without an agent follows the directory: it says nothing
        that its sender could not look up.
Rule 3  The search for a similar name tries the names one mistake away, and no others: its cost
        depends on the length of the name, not on the number of agents.

This module does not know the agents.
"""

import string
from collections.abc import Iterator
from typing import Literal

DirectoryMode = Literal["open", "contacts", "closed"]

SIMILAR_MAX_CHARS = 32
"""Longer names have no similar ones."""

_CHARACTERS = string.ascii_lowercase + string.digits + "_-."
_USUAL_PREFIX = "agent."


def default_mode(*, is_local: bool) -> DirectoryMode:
    """Return the mode of a relay without the setting; `is_local` if only this machine reaches
    it."""
    return "open" if is_local else "contacts"


def may_see(mode: DirectoryMode, *, has_exchanged: bool) -> bool:
    """Return whether an agent sees another one."""
    if mode == "contacts":
        return has_exchanged
    return mode == "open"


def reveals_names(mode: DirectoryMode, *, is_anonymous: bool, anyone_may_bind: bool) -> bool:
    """Return whether a sender may learn that no agent has connected under a name.

    An anonymous one may where it could take a key and look it up.
    """
    return mode == "open" and (anyone_may_bind or not is_anonymous)


def similar_names(name: str) -> Iterator[str]:
    """Yield the texts one mistake away from `name`: a character too many, swapped, wrong or
    missing, the usual prefix missing, or capitals. They are not checked for being subjects."""
    if len(name) > SIMILAR_MAX_CHARS:
        return
    yield name.lower()
    yield _USUAL_PREFIX + name
    for at in range(len(name)):
        yield name[:at] + name[at + 1 :]
    for at in range(len(name) - 1):
        yield name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    for at in range(len(name)):
        head, tail = name[:at], name[at + 1 :]
        for one in _CHARACTERS:
            yield head + one + tail
    for at in range(len(name) + 1):
        head, tail = name[:at], name[at:]
        for one in _CHARACTERS:
            yield head + one + tail
