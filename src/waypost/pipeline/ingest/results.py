"""Results of reading segments."""

from typing import NamedTuple

SegmentKey = tuple[str, int]
"""A relay's name, and the seq of a segment's first event."""


class NewEvents(NamedTuple):
    """The new events of a segment: the seq of the last one, and their number."""

    last_seq: int
    events: int


class SegmentDamage(NamedTuple):
    """Lines of a segment that are no events, and committed events that it lacks."""

    corrupt: int
    missing: int


class IngestedBatch(NamedTuple):
    """A batch added to `events`: its days, the new events of each segment, and the damage."""

    days: list[str]
    new_events: dict[SegmentKey, NewEvents]
    damage: dict[SegmentKey, SegmentDamage]
