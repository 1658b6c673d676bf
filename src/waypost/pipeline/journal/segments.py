"""Journal segments: listing them, and reading the committed batches of one.

A relay seals a segment by renaming `<first-seq>.open` to `<first-seq>.jsonl`, at any moment, also
while a job reads it. Reading by path needs a directory that is visible wherever Spark runs Python:
one machine, or a shared mount.

Standard library and PySpark only at import: executors import this before anything is unpacked.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import SparkSession

from waypost.files import read_file
from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.files import LINE_MAX_BYTES, NotRegular, local_path, open_segment, sees_path
from waypost.pipeline.journal.sources import JournalSource, journal_path, no_journal
from waypost.pipeline.spark.failures import PATH_ERRORS, cause, is_missing

if TYPE_CHECKING:
    from waypost.wire.journal_batches import InvalidBytes

_SUFFIXES = (".jsonl", ".open")
_CHUNK_BYTES = 4 * 1024 * 1024
SEGMENT_MAX_BYTES = 1024 * 1024 * 1024
"""Segments up to this size are read as a whole. A relay seals them at 64 MiB by default."""
_SEQ_MAX = (1 << 63) - 1
_MARK = "confirmed"
"""The file of a node's copy that tells how far the cluster's log has it."""
_MARK_MAX_BYTES = 4096


class SegmentFile(NamedTuple):
    """A segment of a relay, known by the seq of its first event; an open one may still grow.

    `replica`: it is a node's copy, of which only `bytes` are known to be in the cluster's log.
    """

    relay: str
    first_seq: int
    path: str
    bytes: int
    sealed: bool = True
    replica: bool = False


def list_segments(spark: SparkSession, source: JournalSource) -> list[SegmentFile]:
    """Return the segments of a journal in order, wherever Spark can read it.

    Raises `JournalUnusable` if there are none.
    """
    if sees_path(spark, source.path) and Path(local_path(source.path)).is_dir():
        found = list_local_segments(source.relay, os.path.abspath(local_path(source.path)))
        found = [segment._replace(path=f"file:{segment.path}") for segment in found]
    else:
        found = _list_with_spark(spark, source)
    if source.replica:
        return _confirmed(found, source.path)
    if not found:
        raise JournalUnusable(
            f"no journal segments in {source.path}: give the data directory of a relay"
        )
    return found


def _list_with_spark(spark: SparkSession, source: JournalSource) -> list[SegmentFile]:
    try:
        files = (
            spark.read.format("binaryFile")
            .option("pathGlobFilter", "*.{jsonl,open}")
            .load(source.path)
            .select("path", "length")
            .collect()
        )
    except PATH_ERRORS as problem:
        if is_missing(problem):
            raise no_journal(source.path) from None
        raise JournalUnusable(
            f"cannot read the journal at {source.path}: {cause(problem)}"
        ) from None
    for row in files:
        if row.path.startswith("file:"):
            _size(Path(local_path(row.path)))  # Spark follows links
    return _in_order(source.relay, ((row.path, row.length) for row in files))


def one_copy_of_each(segments: Iterable[SegmentFile]) -> list[SegmentFile]:
    """Return each segment once: of several copies, a sealed one, or the longest.

    Copies of a sealed segment are the same, byte for byte; raises `JournalUnusable` if they differ.
    """
    best: dict[tuple[str, int], SegmentFile] = {}
    for one in segments:
        key = (one.relay, one.first_seq)
        known = best.setdefault(key, one)
        if known.sealed and one.sealed and known.bytes != one.bytes:
            raise JournalUnusable(
                f"{known.path} and {one.path} are copies of one segment, and differ: give nodes of"
                " one cluster only; 'waypost cluster verify' tells which of them is wrong"
            )
        if (one.sealed, one.bytes) > (known.sealed, known.bytes):
            best[key] = one
    return list(best.values())


def _confirmed(segments: list[SegmentFile], journal: str) -> list[SegmentFile]:
    """Return a node's copies of segments, an open one as far as the cluster's log has it.

    Behind that, it may have batches that no other node will ever have.
    """
    segment, offset = _confirmed_mark(Path(local_path(journal)) / _MARK)
    found: list[SegmentFile] = []
    for one in segments:
        size = one.bytes if one.sealed or one.first_seq < segment else 0
        if not one.sealed and one.first_seq == segment:
            size = min(one.bytes, offset)
        if size:
            found.append(one._replace(bytes=size, replica=True))
    return found


def _confirmed_mark(path: Path) -> tuple[int, int]:
    """Return the segment and the offset up to which the log has a node's copy."""
    try:
        _, _, _, segment, offset, _ = json.loads(read_file(path, _MARK_MAX_BYTES))
        return int(segment), int(offset)
    except (OSError, ValueError, TypeError):
        return 0, 0


def list_local_segments(relay: str, given: str) -> list[SegmentFile]:
    """Return the segments of a data directory or journal on this machine, without Spark.

    Raises `JournalUnusable` if there is no journal; an empty one has no segments.
    """
    journal = Path(journal_path(local_path(given)))
    if not journal.is_dir():
        raise JournalUnusable(
            f"no journal at {journal}: give the data directory of a relay, readable wherever"
            " Spark runs"
        )
    segments = (path for path in journal.iterdir() if path.suffix in _SUFFIXES)
    found = _in_order(relay, ((str(path), _size(path)) for path in segments))
    is_replica = (journal / _MARK).exists()
    return _confirmed(found, str(journal)) if is_replica else found


def _in_order(relay: str, files: Iterable[tuple[str, int | None]]) -> list[SegmentFile]:
    """Return segments for `files`, given as path and bytes; None is a deleted file."""
    found: dict[int, SegmentFile] = {}
    for name, size in files:
        path = PurePosixPath(name)
        if size is not None:
            segment = SegmentFile(relay, _first_seq(path), name, size, path.suffix == ".jsonl")
            known = found.get(segment.first_seq)
            # A segment sealed while the directory is listed can appear under both names.
            if known is None or segment.sealed:
                found[segment.first_seq] = segment
    return [found[first_seq] for first_seq in sorted(found)]


def _first_seq(path: PurePosixPath) -> int:
    """Return the seq in the name of a segment."""
    digits = path.stem
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise JournalUnusable(f"{path} is not the name of a segment: move it out of the journal")
    if int(digits) > _SEQ_MAX:
        raise JournalUnusable(f"{path} is not a segment: no event has such a number")
    return int(digits)


def _size(path: Path) -> int | None:
    for name in _names(str(path)):
        try:
            found = os.lstat(name)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode):
            raise NotRegular(name)
        return found.st_size
    return None


def _names(path: str) -> tuple[str, str]:
    """Return the name of a segment as it was listed, and its name once sealed."""
    return path, path.removesuffix(".open") + ".jsonl"


def read_bytes(path: str, start: int, end: int | None) -> bytes:
    """Return `path[start:end]`, also if the segment was sealed meanwhile.

    Raises `JournalUnusable` if the relay has deleted it.
    """
    for name in _names(path):
        try:
            with open_segment(name) as file:
                size = os.fstat(file.fileno()).st_size if end is None else end
                if size - start > SEGMENT_MAX_BYTES:
                    raise JournalUnusable(
                        f"{name} is too large to be read at once: `pipeline ingest` reads it line"
                        " by line"
                    )
                file.seek(start)
                return file.read(max(0, size - start))
        except FileNotFoundError:
            continue
    raise JournalUnusable(
        f"{path} was deleted while it was read: the relay's journal retention has passed"
    )


def count_overlong_lines(path: str) -> int:
    """Return how many lines of a local segment are longer than `LINE_MAX_BYTES`."""
    count = length = 0
    with open_segment(path) as file:
        while piece := file.read(_CHUNK_BYTES):
            first, *rest = piece.split(b"\n") if b"\n" in piece else (piece,)
            was_overlong = length > LINE_MAX_BYTES
            length += len(first)
            count += length > LINE_MAX_BYTES and not was_overlong
            if rest:
                length = len(rest[-1])
    return count


def committed_lines(
    data: bytes, on_damage: "Callable[[InvalidBytes], None]"
) -> "Iterator[tuple[bytes, int]]":
    """Yield the lines of the valid batches in `data`, some megabytes at a time, and their number.

    The number is that of the commit lines. Bytes that are no valid batch go to `on_damage`, and
    are skipped if that returns. On executors, call `import_shipped()` first.
    """
    from waypost.wire.journal_batches import InvalidBytes, read_batches

    pieces: list[bytes] = []
    pending_bytes = count = 0
    for piece in read_batches(data):
        if isinstance(piece, InvalidBytes):
            on_damage(piece)
            continue
        pieces.append(data[piece.start : piece.stop])
        pending_bytes += piece.stop - piece.start
        count += piece.commit.count
        if pending_bytes >= _CHUNK_BYTES:
            yield b"".join(pieces), count
            pieces, pending_bytes, count = [], 0, 0
    if pieces:
        yield b"".join(pieces), count
