"""Telling whole batches of a segment from what is damaged or not finished. Pure.

A batch counts if its commit line is whole and its checksum fits. A commit line knows the length
of its own batch, so damage before it costs only the batches it touches.
"""

import zlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from waypost.wire.events import COMMIT_PREFIX, decode_commit

_COMMIT_MARK = b"\n" + COMMIT_PREFIX


class Batch(NamedTuple):
    """Lines in `data[start:stop]`, up to event `seq`; the commit line ends at `end`."""

    start: int
    stop: int
    end: int
    seq: int


class Damage(NamedTuple):
    """`data[start:end]` is no batch. `unfinished`: nothing whole follows, it may still grow."""

    start: int
    end: int
    unfinished: bool


def whole_batches(data: bytes) -> Iterator[Batch | Damage]:
    """The batches of `data`, which begins where a batch does, and what lies between them."""
    start = looked_until = broken_until = 0
    while start < len(data):
        mark = data.find(_COMMIT_MARK, looked_until)
        newline = data.find(b"\n", mark + 1) if mark >= 0 else -1
        if newline < 0:
            if broken_until > start:
                yield Damage(start, broken_until, unfinished=False)
            if len(data) > broken_until:
                yield Damage(broken_until, len(data), unfinished=True)
            return
        batch = _batch_before(data, start, mark + 1, newline + 1)
        if batch is None:
            looked_until, broken_until = mark + 1, newline + 1
            continue
        if batch.start > start:
            yield Damage(start, batch.start, unfinished=False)
        yield batch
        start = looked_until = broken_until = batch.end


def _batch_before(data: bytes, start: int, stop: int, end: int) -> Batch | None:
    """The batch closed by the line `data[stop:end]`, if it is whole and begins after `start`."""
    try:
        commit = decode_commit(data[stop:end])
    except msgspec.MsgspecError:
        return None
    begin = stop - commit.bytes
    if not start <= begin < stop or zlib.crc32(memoryview(data)[begin:stop]) != commit.crc:
        return None
    return Batch(begin, stop, end, commit.seq)
