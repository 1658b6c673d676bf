"""Puts a single flipped byte of a damaged batch right, with the batch's checksum as the proof.

A CRC is linear: how the checksum differs tells which byte value, at which distance from the end,
was changed. Stepping the difference back one byte at a time finds every place where one changed
byte explains it. Long batches can have more than one such place by chance, so the answer also
has to make sense as events in unbroken numbers, and be the only one that does.
"""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from waypost.relay.journal.segments import Damage
from waypost.wire.events import COMMIT_PREFIX, Commit, decode_commit, decode_event

_POLYNOMIAL = 0xEDB88320


class FlippedByte(msgspec.Struct, frozen=True):
    """The byte at `offset` of the segment holds `found` and held `wanted` when it was written."""

    offset: int
    found: int
    wanted: int


def find_flipped_byte(path: Path, damage: Damage) -> FlippedByte | None:
    """The one byte of the segment `path` that explains `damage`, if one does."""
    with path.open("rb") as file:
        file.seek(damage.start)
        data = file.read(damage.end - damage.start)
    mark = data.rfind(b"\n" + COMMIT_PREFIX) + 1
    try:
        commit = decode_commit(data[mark:])
    except msgspec.MsgspecError:
        return None
    lines = data[:mark]
    if commit.bytes != len(lines):
        return None
    sound = [
        FlippedByte(damage.start + at, lines[at], lines[at] ^ change)
        for at, change in explanations(lines, commit.crc)
        if _is_sound(lines, at, change, commit)
    ]
    return sound[0] if len(sound) == 1 else None


def put_right(path: Path, flipped: FlippedByte) -> None:
    """Write the byte as it was, durably."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, bytes([flipped.wanted]), flipped.offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def explanations(data: bytes, wanted_crc: int) -> Iterator[tuple[int, int]]:
    """Each (offset, change) such that `data[offset] ^ change` gives `data` the wanted CRC-32."""
    difference = zlib.crc32(data) ^ wanted_crc
    for offset in range(len(data) - 1, -1, -1):
        change = _CHANGE.get(difference)
        if change:
            yield offset, change
        low = _BY_TOP_BYTE[difference >> 24]
        difference = ((difference ^ _TABLE[low]) << 8 | low) & 0xFFFFFFFF


def _is_sound(lines: bytes, at: int, change: int, commit: Commit) -> bool:
    """Whether the lines, so changed, are the events that `commit` closes."""
    mended = bytearray(lines)
    mended[at] ^= change
    if zlib.crc32(mended) != commit.crc:
        return False
    try:
        numbers = [decode_event(line).seq for line in bytes(mended).split(b"\n")[:-1]]
    except msgspec.MsgspecError:
        return False
    return numbers == list(range(commit.seq - commit.count + 1, commit.seq + 1))


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return table


_TABLE = _table()
_CHANGE = {value: index for index, value in enumerate(_TABLE)}
_BY_TOP_BYTE = {value >> 24: index for index, value in enumerate(_TABLE)}
