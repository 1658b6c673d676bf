"""Telling whole batches of a journal segment from what is damaged or not finished.

Rule 1  A batch counts if its commit line is whole and its checksum fits.
Rule 2  A commit line knows the length of its own batch, so damage before it costs only the batches
        it touches.
Rule 3  What no whole batch follows is either broken batches, which had a commit line, or after
        them an unfinished write.
"""

import zlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from waypost.wire.events import COMMIT_PREFIX, Commit, decode_commit

COMMIT_MARK = b"\n" + COMMIT_PREFIX


class WholeBatch(NamedTuple):
    """Lines in `data[start:stop]`; the commit line ends at `end`."""

    start: int
    stop: int
    end: int
    commit: Commit


class NoBatch(NamedTuple):
    """`data[start:end]` is no batch. `unfinished`: nothing whole follows, it may still grow."""

    start: int
    end: int
    unfinished: bool


def whole_batches(data: bytes, start: int = 0) -> Iterator[WholeBatch | NoBatch]:
    """The batches of `data` from `start` on, where one begins, and what lies between them."""
    looked_until = broken_until = start
    while start < len(data):
        mark = data.find(COMMIT_MARK, looked_until)
        newline = data.find(b"\n", mark + 1) if mark >= 0 else -1
        if newline < 0:
            if broken_until > start:
                yield NoBatch(start, broken_until, unfinished=False)
            if len(data) > broken_until:
                yield NoBatch(broken_until, len(data), unfinished=True)
            return
        batch = _batch_before(data, start, mark + 1, newline + 1)
        if batch is None:
            # The damage may reach into the next batch, whose own commit line says where it begins.
            looked_until, broken_until = mark + 1, newline + 1
            continue
        if batch.start > start:
            yield NoBatch(start, batch.start, unfinished=False)
        yield batch
        start = looked_until = broken_until = batch.end


def _batch_before(data: bytes, start: int, stop: int, end: int) -> WholeBatch | None:
    """The batch closed by the line `data[stop:end]`, if it is whole and begins after `start`."""
    try:
        commit = decode_commit(data[stop:end])
    except msgspec.MsgspecError:
        return None
    begin = stop - commit.bytes
    if not start <= begin < stop or zlib.crc32(memoryview(data)[begin:stop]) != commit.crc:
        return None
    return WholeBatch(begin, stop, end, commit)
