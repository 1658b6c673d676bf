"""A journal as files: where it lies, and its segments, which their relay may seal at any moment.

The directory must be readable wherever Spark runs Python: on one machine, or on a shared mount.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from waypost.pipeline.errors import JournalUnusable

if TYPE_CHECKING:
    from waypost.wire.journal_batches import NoBatch

_LINES_AT_ONCE_BYTES = 4 * 1024 * 1024


class SegmentFile(NamedTuple):
    """A segment: the number of its first event, and its file as it was last seen."""

    first_seq: int
    path: str
    sealed: bool


def journal_directory(given: str) -> str:
    """The journal of a data directory, which may be given itself. Raises `JournalUnusable`."""
    path = Path(local_path(given))
    journal = path if path.name == "journal" else path / "journal"
    if not journal.is_dir():
        raise JournalUnusable(
            f"there is no journal at {journal}: give the data directory of a relay, readable"
            " wherever Spark runs"
        )
    return str(journal)


def local_path(given: str) -> str:
    """A path, or the address of a file, as a path."""
    return given.removeprefix("file://").removeprefix("file:")


def segments_in(directory: str) -> list[SegmentFile]:
    """Every segment, in order."""
    found: dict[int, SegmentFile] = {}
    for path in Path(directory).iterdir():
        if path.suffix in (".jsonl", ".open") and path.stem.isdigit():
            segment = SegmentFile(int(path.stem), str(path), path.suffix == ".jsonl")
            known = found.get(segment.first_seq)
            # Seen under both names, it was sealed between two looks.
            found[segment.first_seq] = segment if known is None or segment.sealed else known
    return [found[first_seq] for first_seq in sorted(found)]


def read_bytes(path: str, start: int, end: int | None) -> bytes:
    """`path[start:end]`, wherever sealing has moved it. Raises `JournalUnusable` if it is gone."""
    for name in (path, path.removesuffix(".open") + ".jsonl"):
        try:
            with open(name, "rb") as file:
                file.seek(start)
                return file.read() if end is None else file.read(max(0, end - start))
        except FileNotFoundError:
            continue
    raise JournalUnusable(f"{path} is gone: the relay keeps its journal for a limited time only")


def size_of(path: str) -> int:
    """Bytes of a segment, wherever sealing has moved it. Raises `JournalUnusable`."""
    for name in (path, path.removesuffix(".open") + ".jsonl"):
        try:
            return Path(name).stat().st_size
        except FileNotFoundError:
            continue
    raise JournalUnusable(f"{path} is gone: the relay keeps its journal for a limited time only")


def whole_lines(
    data: bytes, complain: "Callable[[NoBatch], None]"
) -> "Iterator[tuple[bytes, int]]":
    """Lines of the whole batches in `data`, some megabytes at a time, and how many they should be.

    What lies between is told to `complain`, and passed over if that returns. On executors only
    after `unpacked()`.
    """
    from waypost.wire.journal_batches import NoBatch, whole_batches

    pieces: list[bytes] = []
    waiting = count = 0
    for piece in whole_batches(data):
        if isinstance(piece, NoBatch):
            complain(piece)
            continue
        pieces.append(data[piece.start : piece.stop])
        waiting += piece.stop - piece.start
        count += piece.commit.count
        if waiting >= _LINES_AT_ONCE_BYTES:
            yield b"".join(pieces), count
            pieces, waiting, count = [], 0, 0
    if pieces:
        yield b"".join(pieces), count
