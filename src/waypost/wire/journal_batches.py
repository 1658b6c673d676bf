"""The batches of a journal segment: valid, corrupt, or unfinished.

Rule 1  A batch is valid if its commit line can be decoded and its checksum matches.
Rule 2  A commit line holds the length of its own batch, so damage affects only the batches it
        touches.
Rule 3  Bytes after the last valid batch are corrupt batches (they end in a commit line) or, after
        those, an unfinished write.
Rule 4  Each batch names the hash of the batch before it, so that nothing in between can be changed,
        removed or inserted without changing every batch after it.
"""

import zlib
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from waypost.wire.events import COMMIT_PREFIX, BodiesHash, Commit, decode_commit

COMMIT_MARK = b"\n" + COMMIT_PREFIX
NO_BATCH = "0" * 64
"""The hash that the first batch of a journal names."""


def batch_hash(batch: bytes | bytearray | memoryview) -> str:
    """Return the SHA-256 of a batch, from its first line to the end of its commit line."""
    return sha256(batch).hexdigest()


def bodies_hash(bodies: Sequence[bytes], end: int) -> BodiesHash | None:
    """Return the extent and hash of large payloads that end at byte `end` of a body file."""
    if not bodies:
        return None
    digest = sha256()
    for body in bodies:
        digest.update(body)
    length = sum(map(len, bodies))
    return BodiesHash(end - length, length, digest.hexdigest())


class ValidBatch(NamedTuple):
    """Lines in `data[start:stop]`; the commit line ends at `end`."""

    start: int
    stop: int
    end: int
    commit: Commit


class InvalidBytes(NamedTuple):
    """`data[start:end]` is not a batch. `unfinished`: no valid batch follows, it may still grow."""

    start: int
    end: int
    unfinished: bool


def read_batches(data: bytes, start: int = 0) -> Iterator[ValidBatch | InvalidBytes]:
    """Yield the batches of `data` from `start`, the start of a batch, and invalid bytes between
    them."""
    searched_until = corrupt_until = start
    while start < len(data):
        mark = data.find(COMMIT_MARK, searched_until)
        newline = data.find(b"\n", mark + 1) if mark >= 0 else -1
        if newline < 0:
            if corrupt_until > start:
                yield InvalidBytes(start, corrupt_until, unfinished=False)
            if len(data) > corrupt_until:
                yield InvalidBytes(corrupt_until, len(data), unfinished=True)
            return
        batch = _batch_before(data, start, mark + 1, newline + 1)
        if batch is None:
            # The damage may reach into the next batch; its own commit line holds its start.
            searched_until, corrupt_until = mark + 1, newline + 1
            continue
        if batch.start > start:
            yield InvalidBytes(start, batch.start, unfinished=False)
        yield batch
        start = searched_until = corrupt_until = batch.end


def _batch_before(data: bytes, start: int, stop: int, end: int) -> ValidBatch | None:
    """Return the batch that the line `data[stop:end]` closes, if it is valid and starts at or
    after `start`."""
    try:
        commit = decode_commit(data[stop:end])
    except msgspec.MsgspecError:
        return None
    begin = stop - commit.bytes
    if not start <= begin < stop or zlib.crc32(memoryview(data)[begin:stop]) != commit.crc:
        return None
    return ValidBatch(begin, stop, end, commit)
