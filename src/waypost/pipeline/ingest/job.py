"""`ingest`: reads the segments of any number of relays into `events`, each line exactly once.

The manifest holds what was ingested, and is written with the events in one commit: a run that is
killed leaves the lake unchanged, and a repeated run finds nothing to do. Of a segment that is
still open, the committed part is ingested now and the rest by a later run.
"""

from collections.abc import Iterable

import msgspec

from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.ingest.arrow_reader import ingest_with_arrow
from waypost.pipeline.ingest.results import IngestedBatch, NewEvents, SegmentDamage
from waypost.pipeline.ingest.spark_reader import ingest_with_spark
from waypost.pipeline.journal.segments import SegmentFile, list_segments, one_copy_of_each
from waypost.pipeline.journal.sources import JournalSource
from waypost.pipeline.lake.delta import update_all_logs
from waypost.pipeline.lake.lake import Change, Lake
from waypost.pipeline.lake.manifest import IngestedSegment, Manifest
from waypost.pipeline.spark.session import on_this_machine


class IngestSummary(msgspec.Struct, kw_only=True):
    """The result of a run. `missing`: committed events that cannot be read."""

    relays: int = 0
    segments: int = 0
    events: int = 0
    corrupt: int = 0
    missing: int = 0
    bytes: int = 0
    days: list[str] = []
    notes: list[str] = []
    """Why Delta tables are not up to date."""


def ingest(
    lake: Lake, sources: Iterable[JournalSource], *, line_by_line: bool = False
) -> IngestSummary:
    """Ingest the new events of `sources`.

    `line_by_line`: use only Spark's readers and writers, as for files that are not local.
    """
    change, sources = lake.begin(), list(sources)
    listed = (segment for source in sources for segment in list_segments(lake.spark, source))
    found = one_copy_of_each(listed)
    new = [segment for segment in found if _is_new(segment, change.draft)]
    if not new:
        return IngestSummary(notes=update_all_logs(lake.path, lake.manifest))
    batch = None
    if not line_by_line and _are_local(lake, sources, new):
        batch = ingest_with_arrow(change, new)
    if batch is None:  # line by line, an open copy would be read beyond what is confirmed
        new = [segment for segment in new if segment.sealed or not segment.replica]
        batch = ingest_with_spark(change, new) if new else IngestedBatch([], {}, {})
    summary = _record(change, new, batch)
    change.commit()
    summary.notes = update_all_logs(lake.path, lake.manifest)
    return summary


def _is_new(segment: SegmentFile, manifest: Manifest) -> bool:
    known = manifest.relays.get(segment.relay, {}).get(segment.first_seq)
    if known is None:
        return True
    if not known.sealed:
        return segment.sealed or segment.bytes > known.bytes
    if known.bytes == segment.bytes or (segment.replica and not segment.sealed):
        return False  # the same, or a copy of a node that is behind
    raise JournalUnusable(
        f"{segment.path} differs from segment {segment.first_seq} of relay {segment.relay!r} in"
        " this lake: if it belongs to another relay, name that with --journal NAME=DIR"
    )


def _are_local(lake: Lake, sources: list[JournalSource], segments: list[SegmentFile]) -> bool:
    """Return whether lake and segments are files on this machine.

    Spark returns full addresses of segments. A lake given as a path is in the same file system as
    journals given as paths.
    """
    if not on_this_machine(lake.spark):
        return False
    if not all(segment.path.startswith("file:") for segment in segments):
        return False
    as_path = any(":" not in source.path for source in sources)
    return lake.path.startswith("file:") or (as_path and ":" not in lake.path)


def _record(change: Change, new: list[SegmentFile], batch: IngestedBatch) -> IngestSummary:
    """Record in the draft manifest what was ingested of each segment."""
    summary = IngestSummary(
        relays=len({segment.relay for segment in new}),
        segments=len(new),
        bytes=sum(segment.bytes for segment in new),
        days=batch.days,
    )
    for one in new:
        key = (one.relay, one.first_seq)
        before = change.draft.known(*key)
        added = batch.new_events.get(key, NewEvents(before.last_seq, 0))
        damage = batch.damage.get(key, SegmentDamage(0, 0))
        change.draft.relays.setdefault(one.relay, {})[one.first_seq] = IngestedSegment(
            added.last_seq,
            one.bytes,
            before.events + added.events,
            damage.corrupt,
            damage.missing,
            one.sealed,
        )
        summary.events += added.events
        summary.corrupt += damage.corrupt
        summary.missing += damage.missing
    return summary
