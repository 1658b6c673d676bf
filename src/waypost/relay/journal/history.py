"""Finding the events of one message in the journal."""

from collections.abc import Iterator
from pathlib import Path

from waypost.relay.journal.segments import (
    Batch,
    last_commit,
    list_segments,
    read_segment,
    segment_bytes,
)
from waypost.wire.events import AnyEvent, Commit
from waypost.wire.identifiers import ulid_time_ms

_CLOCK_SLACK_MS = 24 * 3_600_000
"""Ids contain the time of the relay's clock, which may have been set back since."""


Segments = list[tuple[int, Path]]


def find_events(directory: Path, message_id: str) -> Iterator[AnyEvent]:
    """Yield the committed events of one message, in order."""
    segments = list(list_segments(directory).items())
    since = _since(segments, ulid_time_ms(message_id))
    found = False
    for event in _search(since, message_id):
        found = True
        yield event
    if not found:  # an id chosen by its sender may contain a time in the future
        yield from _search([one for one in segments if one not in since], message_id)


def _search(segments: Segments, message_id: str) -> Iterator[AnyEvent]:
    needle = b'"id":"' + message_id.encode(errors="surrogateescape") + b'"'
    for first_seq, path in segments:
        try:
            found = needle in segment_bytes(path)
            pieces = list(read_segment(path, first_seq)) if found else []
        except FileNotFoundError:
            continue  # deleted since the list was made
        for piece in pieces:
            if isinstance(piece, Batch) and piece.data.find(needle, piece.start, piece.stop) >= 0:
                for event, _ in piece.events():
                    if getattr(event, "id", None) == message_id:
                        yield event


def _since(segments: Segments, created_ms: int | None) -> Segments:
    """Return the segments that may hold events of a message created at `created_ms`."""
    if created_ms is None:
        return segments
    cutoff_us = (created_ms - _CLOCK_SLACK_MS) * 1000
    ends = ((first, path, _last_commit(path)) for first, path in segments)
    return [(first, path) for first, path, end in ends if end is None or end.at_us >= cutoff_us]


def _last_commit(path: Path) -> Commit | None:
    try:
        return last_commit(path)
    except FileNotFoundError:
        return None  # sealed or deleted since the list was made
