"""Journal segments: listing them, and reading the committed batches of one.

A relay seals a segment by renaming `<first-seq>.open` to `<first-seq>.jsonl`, at any moment, also
while a job reads it. Reading by path needs a directory that is visible wherever Spark runs Python:
one machine, or a shared mount.

Standard library and PySpark only at import: executors import this before anything is unpacked.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.files import local_path
from waypost.pipeline.journal.sources import JournalSource, journal_path

if TYPE_CHECKING:
    from waypost.wire.journal_batches import InvalidBytes

_SUFFIXES = (".jsonl", ".open")
_CHUNK_BYTES = 4 * 1024 * 1024


class SegmentFile(NamedTuple):
    """A segment of a relay, known by the seq of its first event; an open one may still grow."""

    relay: str
    first_seq: int
    path: str
    bytes: int
    sealed: bool = True


def list_segments(spark: SparkSession, source: JournalSource) -> list[SegmentFile]:
    """Return the segments of a journal in order, wherever Spark can read it.

    Raises `JournalUnusable` if there are none.
    """
    try:
        files = (
            spark.read.format("binaryFile")
            .option("pathGlobFilter", "*.{jsonl,open}")
            .load(source.path)
            .select("path", "length")
            .collect()
        )
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_NOT_FOUND":
            raise
        raise JournalUnusable(
            f"no journal at {source.path}: give the data directory of a relay"
        ) from None
    found = _in_order(source.relay, ((row.path, row.length) for row in files))
    if not found:
        raise JournalUnusable(
            f"no journal segments in {source.path}: give the data directory of a relay"
        )
    return found


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
    return _in_order(relay, ((str(path), _size(path)) for path in segments))


def _in_order(relay: str, files: Iterable[tuple[str, int | None]]) -> list[SegmentFile]:
    """Return the segments among `files`, given as path and bytes; None is a deleted file."""
    found: dict[int, SegmentFile] = {}
    for name, size in files:
        path = PurePosixPath(name)
        if path.stem.isdigit() and size is not None:
            segment = SegmentFile(relay, int(path.stem), name, size, path.suffix == ".jsonl")
            known = found.get(segment.first_seq)
            # A segment sealed while the directory is listed can appear under both names.
            if known is None or segment.sealed:
                found[segment.first_seq] = segment
    return [found[first_seq] for first_seq in sorted(found)]


def _size(path: Path) -> int | None:
    for name in _names(str(path)):
        try:
            return Path(name).stat().st_size
        except FileNotFoundError:
            continue
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
            with open(name, "rb") as file:
                file.seek(start)
                return file.read() if end is None else file.read(max(0, end - start))
        except FileNotFoundError:
            continue
    raise JournalUnusable(
        f"{path} was deleted while it was read: the relay's journal retention has passed"
    )


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
