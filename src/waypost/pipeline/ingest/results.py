"""What came of reading segments."""

from typing import NamedTuple

Key = tuple[str, int]
"""A relay's name, and the first number of a segment of its journal."""


class Read(NamedTuple):
    """The new events of a segment, and the number of the last one."""

    last_seq: int
    events: int


class Damage(NamedTuple):
    """Lines of a segment that are no events, and events that its commits tell of and it lacks."""

    corrupt: int
    missing: int


class Taken(NamedTuple):
    """What was added to `events`: on which days, of which segments, and what was wrong there."""

    days: list[str]
    read: dict[Key, Read]
    damaged: dict[Key, Damage]
