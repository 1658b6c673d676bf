"""`ingest`: the segments of any number of relays become `events`, each line exactly once.

What was taken in is in the manifest, which is written with the events in one commit: a run that
is killed leaves the lake as it was, and one that is repeated finds nothing to do. Of a segment
that is still open, what is committed is taken in, and the rest the next time.
"""

from collections.abc import Iterable

import msgspec
from pyspark.sql.utils import is_remote

from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.ingest.results import Damage, Read, Taken
from waypost.pipeline.ingest.spark_reader import take_lines
from waypost.pipeline.ingest.whole import take_whole
from waypost.pipeline.journal.sources import JournalSource, SegmentFile, list_segments
from waypost.pipeline.lake.lake import Change, Lake
from waypost.pipeline.lake.manifest import Manifest, Segment


class Ingested(msgspec.Struct, kw_only=True):
    """What a run took in. `missing`: events that commit lines tell of and nobody can read."""

    relays: int = 0
    segments: int = 0
    events: int = 0
    corrupt: int = 0
    missing: int = 0
    bytes: int = 0
    days: list[str] = []


def ingest(lake: Lake, places: Iterable[JournalSource], *, line_by_line: bool = False) -> Ingested:
    """Take in what is new at `places`.

    `line_by_line`: with Spark's readers and writers alone, as where files are not local.
    """
    change, places = lake.begin(), list(places)
    found = [segment for place in places for segment in list_segments(lake.spark, place)]
    new = [segment for segment in found if _is_new(segment, change.draft)]
    if not new:
        return Ingested()
    taken = None
    if not line_by_line and _are_local(lake, places, new):
        taken = take_whole(change, new)
    summary = _note(change, new, taken or take_lines(change, new))
    change.commit()
    return summary


def _is_new(segment: SegmentFile, manifest: Manifest) -> bool:
    known = manifest.relays.get(segment.relay, {}).get(segment.first_seq)
    if known is None:
        return True
    if not known.sealed:
        return segment.sealed or segment.bytes > known.bytes
    if known.bytes == segment.bytes:
        return False
    raise JournalUnusable(
        f"{segment.path} is not the segment {segment.first_seq} of relay {segment.relay!r} that"
        " this lake already holds: if it is of another relay, name it with --journal NAME=DIR"
    )


def _are_local(lake: Lake, places: list[JournalSource], segments: list[SegmentFile]) -> bool:
    """Whether lake and segments are files here.

    Spark says in full where segments lie. A lake given as a path lies where journals given as
    paths turned out to.
    """
    if is_remote() or not all(segment.path.startswith("file:") for segment in segments):
        return False
    as_path = any(":" not in place.path for place in places)
    return lake.path.startswith("file:") or (as_path and ":" not in lake.path)


def _note(change: Change, new: list[SegmentFile], taken: Taken) -> Ingested:
    """Write into the draft what was taken in of each segment."""
    summary = Ingested(
        relays=len({segment.relay for segment in new}),
        segments=len(new),
        bytes=sum(segment.bytes for segment in new),
        days=taken.days,
    )
    for one in new:
        key = (one.relay, one.first_seq)
        before = change.draft.known(*key)
        read = taken.read.get(key, Read(before.last_seq, 0))
        damage = taken.damaged.get(key, Damage(0, 0))
        change.draft.relays.setdefault(one.relay, {})[one.first_seq] = Segment(
            read.last_seq,
            one.bytes,
            before.events + read.events,
            damage.corrupt,
            damage.missing,
            one.sealed,
        )
        summary.events += read.events
        summary.corrupt += damage.corrupt
        summary.missing += damage.missing
    return summary
