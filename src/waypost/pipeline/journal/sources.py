"""Which journals to read: relays by name, and the segments of each."""

import re
from pathlib import PurePosixPath

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from waypost.pipeline.errors import JournalUnusable

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class JournalSource(msgspec.Struct, frozen=True):
    """A relay's name in the lake, and the directory or address of its journal."""

    relay: str
    path: str


class SegmentFile(msgspec.Struct, frozen=True):
    """A segment of a relay, by the number of its first event; an open one may still grow."""

    relay: str
    first_seq: int
    path: str
    bytes: int
    sealed: bool = True


def parse_places(given: list[str]) -> list[JournalSource]:
    """`DIR` or `NAME=DIR`, where DIR is a data directory or its `journal/`.

    Without a name, a relay is called as its data directory is.
    """
    places = [_parse(one) for one in given]
    names = [place.relay for place in places]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise JournalUnusable(
            f"two journals would both be called {twice[0]!r}: name them apart with"
            " --journal NAME=DIR"
        )
    return places


def _parse(given: str) -> JournalSource:
    name, equals, path = given.partition("=")
    if not equals or not _NAME.fullmatch(name):
        name, path = "", given
    path = path.rstrip("/")
    at = PurePosixPath(path)
    journal = path if at.name == "journal" else f"{path}/journal"
    name = name or PurePosixPath(journal).parent.name or "relay"
    if not _NAME.fullmatch(name):
        raise JournalUnusable(f"{name!r} cannot be the name of a relay: use --journal NAME={path}")
    return JournalSource(name, journal)


def list_segments(spark: SparkSession, place: JournalSource) -> list[SegmentFile]:
    """The segments at `place`, in order. Raises `JournalUnusable` if nothing is there."""
    try:
        files = (
            spark.read.format("binaryFile")
            .option("pathGlobFilter", "*.{jsonl,open}")
            .load(place.path)
            .select("path", "length")
            .collect()
        )
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_NOT_FOUND":
            raise
        raise JournalUnusable(
            f"there is no journal at {place.path}: give the data directory of a relay"
        ) from None
    found = [
        SegmentFile(
            place.relay, int(path.stem), row.path, row.length, sealed=path.suffix == ".jsonl"
        )
        for row in files
        if (path := PurePosixPath(row.path)).stem.isdigit()
    ]
    if not found:
        raise JournalUnusable(f"{place.path} holds no journal: give the data directory of a relay")
    return sorted(found, key=lambda segment: segment.first_seq)
